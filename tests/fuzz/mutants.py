"""Payloads that are almost what engines send: recorded ones, damaged in their bytes or in their structure."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from tests.fuzz.hostile import INTEGERS, TIMES, anything, lying_length
from tests.fuzz.msgpack_writer import LONG, Pairs, written
from tests.support.inputs.captures import EMITTERS, NAMES, PUBLISHERS, captured_frames

PER_CAPTURE = 200
MAX_COMMON_BYTES = 2_500
"""Of most recorded payloads that are taken; one of a capture may be as long as it is."""
MAX_ITEMS = 400
"""Of a recorded list that is damaged: what lies behind is cut."""
DAMAGES = (0.002, 0.02, 0.1)
"""Share of the parts of a structure that are hit."""


def recorded_payloads() -> list[bytes]:
    """Return payloads of every capture."""
    found = []
    for name in (*NAMES, *PUBLISHERS, *EMITTERS):
        payloads = [frames[-1] for frames in captured_frames(name)]
        common = [payload for payload in payloads if len(payload) <= MAX_COMMON_BYTES]
        found += [max(payloads, key=len), *common[:: max(1, len(common) // PER_CAPTURE)]]
    return found


class Mutants:
    """Endless mutants, each of which depends on the seed and its number alone."""

    def __init__(self, seed: int, payloads: Sequence[bytes] | None = None) -> None:
        self._seed = seed
        self._payloads = recorded_payloads() if payloads is None else payloads
        self._values = [msgspec.msgpack.decode(payload) for payload in self._payloads]

    def rng(self, number: int) -> random.Random:
        """Return the chance that belongs to a number."""
        return random.Random(f"{self._seed}/{number}")

    def recorded(self, number: int) -> bytes:
        """Return a payload as it was recorded; of neighbouring numbers they mostly follow each other."""
        return self._payloads[number % len(self._payloads)]

    def mutant(self, number: int, rng: random.Random | None = None) -> bytes:
        """Return the mutant of a number."""
        rng = rng or self.rng(number)
        chosen = rng.randrange(len(self._payloads))
        if len(self._payloads[chosen]) > MAX_COMMON_BYTES and rng.random() < 0.9:
            chosen = rng.randrange(len(self._payloads))
        kind = rng.random()
        if kind < 0.02:
            return rng.choice((b"", rng.randbytes(rng.randrange(200)), lying_length(rng)))
        if kind < 0.45:
            return damaged_bytes(self._payloads[chosen], self._payloads, rng)
        value = damaged_value(self._values[chosen], rng, rng.choice(DAMAGES))
        payload = written(value, rng, rng.choice((0.0, 0.05, 0.5)))
        return damaged_bytes(payload, self._payloads, rng) if kind > 0.95 else payload


def damaged_bytes(payload: bytes, others: Sequence[bytes], rng: random.Random) -> bytes:
    """Return a payload with some bytes changed, put in, left out, repeated, or another's."""
    content = bytearray(payload)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 20))):
        # Most of what decides stands at the beginning.
        at = int(rng.expovariate(1 / 24)) if rng.random() < 0.5 else rng.randrange(len(content) + 1)
        at = min(at, max(0, len(content) - 1))
        few = rng.choice((1, 2, 4, 8, 64))
        how = rng.randrange(8)
        if how == 0 and content:
            content[at] ^= 1 << rng.randrange(8)
        elif how == 1 and content:
            content[at] = rng.randrange(0x80, 0x100)
        elif how == 2:
            del content[at:]
        elif how == 3:
            del content[at : at + few]
        elif how == 4:
            content[at:at] = rng.randbytes(few)
        elif how == 5:
            content[at:at] = written(anything(rng), rng, 0.2)
        elif how == 6:
            content[at : at + 5] = lying_length(rng)
        else:
            content[at:] = rng.choice(others)[at : at + 2_000]
    return bytes(content)


def damaged_value(value: Any, rng: random.Random, share: float) -> Any:
    """Return a value with about `share` of its parts replaced, doubled, left out, or in another order."""
    if rng.random() < share / 2:
        return anything(rng)
    if isinstance(value, list) and len(value) > LONG and set(map(type, value)) == {int}:
        items = value[:MAX_ITEMS]
        for _ in range(int(share * len(items) + rng.random())):
            items[rng.randrange(len(items))] = anything(rng)
        return _damaged_list(items, rng, share)
    if isinstance(value, list):
        return _damaged_list([damaged_value(item, rng, share) for item in value[:MAX_ITEMS]], rng, share)
    if isinstance(value, dict):
        pairs = [(key, damaged_value(item, rng, share)) for key, item in value.items()]
        damaged = _damaged_list(pairs, rng, share)
        if rng.random() < share and damaged:
            at = rng.randrange(len(damaged))
            damaged[at] = (rng.choice((anything(rng), str(damaged[at][0]) + "x")), damaged[at][1])
        return Pairs(tuple(damaged))
    if rng.random() < share * 2:
        if isinstance(value, float):
            return rng.choice(TIMES)
        if isinstance(value, int):
            return rng.choice(INTEGERS)
    return value


def _damaged_list(items: list[Any], rng: random.Random, share: float) -> list[Any]:
    if not items or rng.random() >= 2 * share:
        return items
    at = rng.randrange(len(items))
    changes: tuple[Callable[[], list[Any]], ...] = (
        lambda: items[:at],
        lambda: items[:at] + items[at + 1 :],
        lambda: items[:at] + items[at : at + 1] * rng.choice((2, 2, 20, 20, 300)) + items[at + 1 :],
        lambda: items[at:] + items[:at],
        lambda: [*items, *items[at:]],
    )
    return rng.choice(changes)()
