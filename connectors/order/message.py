"""A batch as it came."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Message:
    """A batch as it came, its frame checked."""

    seq: int
    fingerprint: int
    """Fingerprint of the payload."""
    payload: bytes
    received_at: float
