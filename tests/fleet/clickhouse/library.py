"""See to ClickHouse's server as a library: in KVLENS_CLICKHOUSE_LIBRARY, fetched before, or fetched now."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
from base64 import b64encode
from hashlib import sha512
from pathlib import Path
from tempfile import TemporaryDirectory

VARIABLE = "KVLENS_CLICKHOUSE_LIBRARY"
"""A libchdb.so that exports `query_stable_v2`, the command line of clickhouse-local."""
PACKAGE = "@chdb/lib-linux-x64-gnu@26.7.3-stable.1"
"""Of npm; other versions lack the entry, and so does the wheel that the embedded store is made of."""
SHA512 = "XP97mMqnc5tZpKQywR8N7cLTsHNiTmHr30pC5mzo3jWmukjKn2IBa60c2B/gWUNcuFjOMjWoorQICCqBVj5wpw=="
MEMBER = "package/libchdb.so"
ADVICE = (
    f"no ClickHouse server: set {VARIABLE} to the libchdb.so of {PACKAGE}, "
    "or install npm and see that it reaches a registry"
)


class LibraryMissing(Exception):
    """It cannot be had; the text says in one line what to do."""


def found() -> Path | None:
    """Return the library; None when there is none."""
    named = os.environ.get(VARIABLE)
    file = Path(named) if named else _cache()
    return file if file.is_file() else None


def fetched() -> Path:
    """Fetch the library into the user's cache: 180 MB, 570 MB unpacked. Raises LibraryMissing."""
    if named := os.environ.get(VARIABLE):
        raise LibraryMissing(f"{VARIABLE}={named} is no file")
    npm = shutil.which("npm")
    if npm is None:
        raise LibraryMissing(ADVICE)
    file = _cache()
    file.parent.mkdir(parents=True, exist_ok=True)
    sys.stdout.write(f"fetching {PACKAGE} into {file.parent}, once; 180 MB\n")
    sys.stdout.flush()
    with TemporaryDirectory(dir=file.parent) as aside:
        done = subprocess.run(
            [npm, "pack", "--silent", "--ignore-scripts", f"--pack-destination={aside}", PACKAGE],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            cwd=aside,
            check=False,
        )
        packed = next(Path(aside).glob("*.tgz"), None)
        if done.returncode or packed is None:
            raise LibraryMissing(ADVICE)
        if b64encode(sha512(packed.read_bytes()).digest()).decode() != SHA512:
            raise LibraryMissing(f"npm's {PACKAGE} is not the one that was tried: its SHA-512 differs")
        with tarfile.open(packed) as archive, Path(aside, "library").open("wb") as out:
            member = archive.extractfile(MEMBER)
            if member is None:
                raise LibraryMissing(f"{PACKAGE} holds no {MEMBER}")
            shutil.copyfileobj(member, out, 1 << 20)
        Path(aside, "library").rename(file)
    return file


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    root = Path(base) if base else Path.home() / ".cache"
    return root / "kvlens" / "fleet" / PACKAGE.rpartition("@")[2] / "libchdb.so"


if __name__ == "__main__":
    try:
        sys.stdout.write(f"ClickHouse: {found() or fetched()}\n")
    except LibraryMissing as error:
        sys.stdout.write(f"make test-fleet without a ClickHouse server: {error}\n")
