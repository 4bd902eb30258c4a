"""HTTP content codings, both ways, of any number of frames: clients send one frame for each block of rows."""

from __future__ import annotations

import zlib
from typing import Protocol, cast

import lz4.frame
import zstandard

from pipeline.local.clickhouse.errors import (
    LZ4_DECODER_FAILED,
    NOT_IMPLEMENTED,
    ZLIB_INFLATE_FAILED,
    ZSTD_DECODER_FAILED,
    StoreError,
)

# In the order in which one is chosen for an answer.
CODINGS = ("zstd", "lz4", "gzip", "deflate")
_FAILED = {
    "zstd": (ZSTD_DECODER_FAILED, "ZSTD_DECODER_FAILED"),
    "lz4": (LZ4_DECODER_FAILED, "LZ4_DECODER_FAILED"),
    "gzip": (ZLIB_INFLATE_FAILED, "ZLIB_INFLATE_FAILED"),
    "deflate": (ZLIB_INFLATE_FAILED, "ZLIB_INFLATE_FAILED"),
}
"""Code and name of the error that a server gives for each."""
_GZIP_OR_ZLIB = 47
_ZSTD_LEVEL = 1
_GZIP_LEVEL = 3


class Encoder(Protocol):
    """`feed` may keep bytes back; `finish` gives the rest."""

    def feed(self, data: bytes) -> bytes: ...

    def finish(self) -> bytes: ...


class _FrameDecompressor(Protocol):
    """What zlib, zstd and lz4 have in common: one object for one frame."""

    @property
    def eof(self) -> bool: ...

    @property
    def unused_data(self) -> bytes | None: ...

    def decompress(self, data: bytes, /) -> bytes: ...


class Decoder:
    """Decodes a body piece by piece, frame after frame."""

    def __init__(self, coding: str) -> None:
        """Raises StoreError for a coding not in CODINGS, except "" and identity."""
        self._coding = {"x-gzip": "gzip", "": "identity"}.get(coding.strip().lower(), coding.strip().lower())
        if self._coding != "identity" and self._coding not in CODINGS:
            raise StoreError(NOT_IMPLEMENTED, f"Unknown compression method {coding!r}. (NOT_IMPLEMENTED)")
        self._frame: _FrameDecompressor | None = None

    def feed(self, data: bytes) -> bytes:
        if self._coding == "identity":
            return data
        pieces = []
        try:
            while data:
                frame = self._frame or self._new_frame()
                pieces.append(frame.decompress(data))
                # A finished frame hands back what belongs to the next one: stopping here would lose rows.
                data = (frame.unused_data or b"") if frame.eof else b""
                self._frame = None if frame.eof else frame
        except (zlib.error, zstandard.ZstdError, RuntimeError) as error:
            raise self._failed(str(error)) from error
        return b"".join(pieces)

    def finish(self) -> None:
        """Raises StoreError when the body ended within a frame."""
        if self._frame is not None:
            raise self._failed("the data end within a frame")

    def _failed(self, why: str) -> StoreError:
        code, name = _FAILED[self._coding]
        return StoreError(code, f"Cannot decompress {self._coding} data: {why}. ({name})")

    def _new_frame(self) -> _FrameDecompressor:
        if self._coding == "zstd":
            return cast(_FrameDecompressor, zstandard.ZstdDecompressor().decompressobj())
        if self._coding == "lz4":
            return cast(_FrameDecompressor, lz4.frame.LZ4FrameDecompressor())
        return zlib.decompressobj(_GZIP_OR_ZLIB)


def accepted_coding(accept_encoding: str) -> str | None:
    """Return the coding for an answer, None for none; the client refuses a coding with q=0."""
    offered = set()
    for item in accept_encoding.lower().split(","):
        name, _, weight = item.strip().partition(";")
        if weight.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000"):
            offered.add(name.strip())
    return next((coding for coding in CODINGS if coding in offered), None)


def encoder(coding: str | None) -> Encoder:
    """Return an encoder for a coding of CODINGS; None leaves bytes as they are."""
    if coding is None:
        return _Identity()
    if coding == "zstd":
        return _Zstd()
    if coding == "lz4":
        return _Lz4()
    return _Zlib(31 if coding == "gzip" else 15)


class _Identity:
    def feed(self, data: bytes) -> bytes:
        return data

    def finish(self) -> bytes:
        return b""


class _Zstd:
    def __init__(self) -> None:
        self._compressor = zstandard.ZstdCompressor(level=_ZSTD_LEVEL).compressobj()

    def feed(self, data: bytes) -> bytes:
        return self._compressor.compress(data) + self._compressor.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)

    def finish(self) -> bytes:
        return self._compressor.flush()


class _Lz4:
    def __init__(self) -> None:
        self._compressor = lz4.frame.LZ4FrameCompressor(auto_flush=True)
        self._begun = False

    def feed(self, data: bytes) -> bytes:
        head = b"" if self._begun else self._compressor.begin()
        self._begun = True
        return cast(bytes, head + self._compressor.compress(data))

    def finish(self) -> bytes:
        return (b"" if self._begun else self.feed(b"")) + cast(bytes, self._compressor.flush())


class _Zlib:
    def __init__(self, window: int) -> None:
        self._compressor = zlib.compressobj(_GZIP_LEVEL, zlib.DEFLATED, window)

    def feed(self, data: bytes) -> bytes:
        return self._compressor.compress(data)

    def finish(self) -> bytes:
        return self._compressor.flush()
