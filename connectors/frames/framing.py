"""The frames of an engine's message."""

from __future__ import annotations

from collections.abc import Sequence

Frames = Sequence[bytes]
"""The frames of one ZMQ message: topic, sequence number (8 bytes, big-endian), payload."""

MAX_SEQUENCE = 1 << 48
"""Engines count batches from 0 and get nowhere near: random bytes must not move a position."""
SEQUENCE_BYTES = 8
SEQUENCE_HEAD = bytes(SEQUENCE_BYTES - (MAX_SEQUENCE.bit_length() - 1) // 8)
"""What every sequence frame begins with, as the numbers stay below MAX_SEQUENCE."""


def is_sequence(frame: bytes) -> bool:
    """Tell whether a frame can be a sequence number."""
    return len(frame) == SEQUENCE_BYTES and frame.startswith(SEQUENCE_HEAD)
