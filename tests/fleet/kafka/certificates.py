"""An authority of the tests' own, and what it signs for brokers and users, in PEM files."""

from __future__ import annotations

import subprocess
from pathlib import Path

_CURVE = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
_EXTENSIONS = "subjectAltName=IP:127.0.0.1\nextendedKeyUsage=serverAuth,clientAuth\n"


class Authority:
    """Signs certificates; `ca` is what trusts them."""

    def __init__(self, directory: Path, name: str = "authority") -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._key = directory / f"{name}.key"
        self.ca = directory / f"{name}.crt"
        _openssl(
            *("req", "-x509", *_CURVE, "-subj", f"/CN={name}", "-days", "2"),
            *("-keyout", str(self._key), "-out", str(self.ca)),
        )

    def sign(self, name: str, at: Path | None = None) -> tuple[Path, Path]:
        """Write certificate and key of a name, for 127.0.0.1; return both files."""
        directory = at or self._directory
        certificate, key = directory / f"{name}.crt", directory / f"{name}.key"
        request, extensions = directory / f"{name}.csr", directory / f"{name}.ext"
        extensions.write_text(_EXTENSIONS)
        _openssl("req", *_CURVE, "-subj", f"/CN={name}", "-keyout", str(key), "-out", str(request))
        _openssl(
            *("x509", "-req", "-in", str(request), "-CA", str(self.ca), "-CAkey", str(self._key)),
            *("-CAcreateserial", "-days", "2", "-extfile", str(extensions), "-out", str(certificate)),
        )
        return certificate, key

    def key_store(self, name: str) -> Path:
        """Write key and chain of a name into one file, as Kafka takes them."""
        certificate, key = self.sign(name)
        store = self._directory / f"{name}.pem"
        store.write_bytes(key.read_bytes() + certificate.read_bytes() + self.ca.read_bytes())
        store.chmod(0o600)
        return store


def _openssl(*arguments: str) -> None:
    done = subprocess.run(["openssl", *arguments], capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr
