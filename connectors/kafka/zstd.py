"""zstd compression of record batches, with contexts that are reused.

aiokafka makes a context for every batch that it compresses or decompresses. That takes 20 µs, several times
as long as the bytes of a small batch, and many sources make many small batches.
"""

from __future__ import annotations

import threading
from functools import partial

import zstandard
from aiokafka.errors import CorruptRecordException

from connectors.kafka.private import pack_with

LEVEL = 3
"""Kafka's own default."""
QUICK = -1
"""Half the time, for hardly more bytes where repetitions lie far apart, as in columns of numbers."""


class _Contexts(threading.local):
    """The contexts of one thread: two threads may not use one at the same time."""

    def __init__(self) -> None:
        self.packing: dict[int, zstandard.ZstdCompressor] = {}
        """By level."""
        self.unpacking = zstandard.ZstdDecompressor()


_contexts = _Contexts()


def keep_zstd_contexts(level: int = LEVEL) -> None:
    """Let all of aiokafka's clients in this process use `packed` and `unpacked`."""
    pack_with(partial(packed, level=level), unpacked)


def packed(batch: bytes, level: int = LEVEL) -> bytes:
    """Return a batch compressed into one frame."""
    packing = _contexts.packing
    if level not in packing:
        packing[level] = zstandard.ZstdCompressor(level=level)
    return packing[level].compress(batch)


def unpacked(frames: bytes) -> bytes:
    """Return the bytes of a batch, of one frame or several. Raises CorruptRecordException."""
    parts = []
    try:
        while True:
            frame = _contexts.unpacking.decompressobj()
            parts.append(frame.decompress(frames))
            if not frame.eof:
                raise CorruptRecordException("zstd: the data end within a frame")
            frames = frame.unused_data
            if not frames:
                return b"".join(parts)
    except zstandard.ZstdError as error:
        raise CorruptRecordException(f"zstd: {error}") from error
