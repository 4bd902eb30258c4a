"""The messages of a replay: what is sent to an engine's ROUTER, and what its answer consists of. No IO.

vLLM and SGLang answer a request with one message for each batch, `[b"", seq, payload]`, and an end marker.
Later versions put the topic before the number, so frames are counted from the end. The payload of ATOM's end
marker is the first and the last number that it keeps.
"""

from __future__ import annotations

from collections.abc import Sequence

from connectors.frames.bundle import SEQUENCE_BYTES

END_SEQUENCE = b"\xff" * SEQUENCE_BYTES
MALFORMED = (-1, b"")
"""Stands for a message that is no part of an answer; no batch has this number."""


def request(first: int) -> list[bytes]:
    """Return the frames that a DEALER sends to ask for all batches from number `first` on."""
    return [b"", first.to_bytes(SEQUENCE_BYTES, "big")]


def parse_answer(frames: Sequence[bytes]) -> tuple[int, bytes] | None:
    """Return (sequence number, payload) of an answered message; None for the end marker.

    A message of another shape is MALFORMED.
    """
    if len(frames) < 2 or len(frames[-2]) != SEQUENCE_BYTES:
        return MALFORMED
    number, payload = frames[-2], frames[-1]
    if number == END_SEQUENCE:
        return None
    return int.from_bytes(number, "big"), payload
