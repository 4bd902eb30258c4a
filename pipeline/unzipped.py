"""Files that may be gzip, recognised by their first bytes and not by their names."""

from __future__ import annotations

import gzip
import io
from pathlib import Path
from typing import BinaryIO, cast

_GZIP = b"\x1f\x8b"


def unzipped(path: Path) -> BinaryIO:
    """Open a file for reading what it holds.

    Raises OSError here and, where it is damaged, OSError, EOFError or zlib.error in reading.
    """
    file = path.open("rb")
    if file.peek(2)[:2] != _GZIP:
        return file
    return cast(BinaryIO, io.BufferedReader(gzip.GzipFile(fileobj=file)))
