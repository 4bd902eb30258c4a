"""What may come of an engine whose stream is not in order."""

from __future__ import annotations

import random
from collections.abc import Sequence

import msgspec

from connectors.frames.bundle import Frames

_UNKNOWN = msgspec.msgpack.encode([1.5, [["Novelty"], ["AllBlocksCleared"]], 0])


def troubled(
    frames: Sequence[Frames],
    rng: random.Random,
    *,
    gaps: float = 0.02,
    unreadable: float = 0.02,
    others: float = 0.01,
) -> list[Frames]:
    """Return the messages of a stream with trouble among them.

    Each share is that of the messages which are left out, have a payload that nobody can read before them,
    and, for each of the three `others`, a wrong number of frames, the message before once more, or an event
    that nobody knows.
    """
    messages: list[Frames] = []
    for topic, seq, payload in frames:
        chance = rng.random()
        if chance < gaps:
            continue
        if chance < gaps + unreadable:
            messages.append([topic, seq, b"\xc1"])
        elif chance < gaps + unreadable + others:
            messages.append([topic])
        elif chance < gaps + unreadable + 2 * others and messages:
            messages.append(messages[-1])
        elif chance < gaps + unreadable + 3 * others:
            messages.append([topic, seq, _UNKNOWN])
        messages.append([topic, seq, payload])
    return messages
