"""The TLS files of a section of the settings, each checked on its own: OpenSSL's errors name no file."""

from __future__ import annotations

import ssl
from dataclasses import dataclass

from connectors.process.errors import OperatorError

_NO_CERTIFICATE = "no certificate in PEM form"


class CertificateUnreadable(OperatorError):
    """A file with credentials or certificates, named in the settings, cannot be used."""

    section: str
    setting: str
    file: str
    reason: str
    line = "cannot use {file} of {section}.{setting}: {reason}"


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Paths in a section, empty where it has none. A file that is not usable raises CertificateUnreadable."""

    section: str
    ssl_cafile: str
    ssl_certfile: str
    ssl_keyfile: str

    def require_readable(self) -> None:
        """Open each file, and refuse a key without a certificate."""
        for setting in ("ssl_cafile", "ssl_certfile", "ssl_keyfile"):
            if not (file := getattr(self, setting)):
                continue
            try:
                with open(file, "rb"):
                    pass
            except OSError as error:
                raise self._unusable(setting, error.strerror or str(error)) from error
        if self.ssl_keyfile and not self.ssl_certfile:
            raise self._unusable(
                "ssl_keyfile", f"it is the key of {self.section}.ssl_certfile, which is empty"
            )

    def trusting(self) -> ssl.SSLContext:
        """Return a client's context that trusts the authorities of the settings, or the system's own."""
        try:
            return ssl.create_default_context(cafile=self.ssl_cafile or None)
        except (OSError, ssl.SSLError) as error:
            raise self._unusable("ssl_cafile", _NO_CERTIFICATE) from error

    def load_own(self, context: ssl.SSLContext) -> None:
        """Present the certificate of the settings, with its key."""
        try:
            context.load_cert_chain(self.ssl_certfile, self.ssl_keyfile or None, _no_password)
        except _KeyEncrypted as error:
            reason = "its key is encrypted; store it without a password, readable by kvlens only"
            raise self._unusable(self._of_key, reason) from error
        except (OSError, ssl.SSLError) as error:
            # OpenSSL loads the two together, and says `PEM lib` whichever is wrong.
            self._require_certificate()
            another = isinstance(error, ssl.SSLError) and error.reason == "KEY_VALUES_MISMATCH"
            reason = (
                f"its key is not that of {self.ssl_certfile}" if another else "no private key in PEM form"
            )
            if not self.ssl_keyfile:
                reason += f"; name its file in {self.section}.ssl_keyfile"
            raise self._unusable(self._of_key, reason) from error

    def _require_certificate(self) -> None:
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(self.ssl_certfile)
        except (OSError, ssl.SSLError) as error:
            raise self._unusable("ssl_certfile", _NO_CERTIFICATE) from error

    @property
    def _of_key(self) -> str:
        return "ssl_keyfile" if self.ssl_keyfile else "ssl_certfile"

    def _unusable(self, setting: str, reason: str) -> CertificateUnreadable:
        return CertificateUnreadable(self.section, setting, getattr(self, setting), reason)


class _KeyEncrypted(Exception):
    """The private key needs a password."""


def _no_password() -> str:
    """Refuse OpenSSL's question, which would otherwise wait at the terminal for ever."""
    raise _KeyEncrypted
