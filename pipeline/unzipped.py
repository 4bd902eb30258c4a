"""Files that may be packed with gzip or zstd, recognised by their first bytes and not by their names."""

from __future__ import annotations

import gzip
import io
import zlib
from pathlib import Path
from typing import BinaryIO, cast

import zstandard

_GZIP = b"\x1f\x8b"
_ZSTD = b"\x28\xb5\x2f\xfd"


def unzipped(path: Path) -> BinaryIO:
    """Open a file for reading its content, unpacked.

    Raises OSError here; reading a damaged file raises EOFError, gzip.BadGzipFile or, of zstd too, zlib.error.
    """
    file = path.open("rb")
    beginning = file.peek(4)[:4]
    if beginning.startswith(_GZIP):
        return cast(BinaryIO, io.BufferedReader(_Gzip(file)))
    if beginning == _ZSTD:
        return cast(BinaryIO, io.BufferedReader(_Frames(file)))
    return file


class _Gzip(gzip.GzipFile):
    """The contents of a gzip file, which is closed with it."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        super().__init__(fileobj=file)

    def close(self) -> None:
        super().close()
        self._file.close()


class _Frames(io.RawIOBase):
    """The contents of zstd frames, one after the other; a file that ends within one is damaged."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._decoder = zstandard.ZstdDecompressor().decompressobj()
        self._begun = False
        self._rest = b""
        self._ready = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        while not self._ready:
            packed = self._rest or self._file.read(1 << 16)
            self._rest = b""
            if not packed:
                if not self._decoder.eof and self._begun:
                    raise EOFError("it ends within a zstd frame")
                return 0
            self._ready = self._unpacked(packed)
        part = self._ready[: len(buffer)]
        buffer[: len(part)] = part
        self._ready = self._ready[len(part) :]
        return len(part)

    def _unpacked(self, packed: bytes) -> bytes:
        if self._decoder.eof:
            self._decoder = zstandard.ZstdDecompressor().decompressobj()
        self._begun = True
        try:
            found = self._decoder.decompress(packed)
        except zstandard.ZstdError as error:
            raise zlib.error(str(error)) from error
        self._rest = self._decoder.unused_data if self._decoder.eof else b""
        return found

    def close(self) -> None:
        self._file.close()
        super().close()
