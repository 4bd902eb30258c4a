"""Records that are almost right: one value of the structure is another one, or some bytes are."""

from __future__ import annotations

import random
import struct
from typing import Any

import msgspec

NUMBERS = [-1, 0, 1, 7, 99, 255, 65_535, 2**31 - 1, 2**32 - 1, 2**32, 2**53, 2**63 - 1, 2**64 - 1, -(2**63)]
FLOATS = [float("nan"), float("inf"), float("-inf"), 1e300, -1e300, 1e12, -1.0, 0.5, 7.2e9]
OTHERS: list[Any] = [None, True, "", "x", "other", "p" * 300, b"", b"1234567", b"\xff" * 8, [], [[]], {}]
BAD_TEXT = msgspec.Raw(b"\xa2\xc3\x28")
DEEP = msgspec.Raw(b"\x91" * 20_000 + b"\xc0")

encode, decode = msgspec.msgpack.encode, msgspec.msgpack.decode
Path = tuple[Any, ...]


def mutated(value: bytes, rng: random.Random, *, times: int = 1) -> bytes:
    """Return a mutant of an encoded record; what it says is anything."""
    if rng.random() < 0.25:
        return _other_bytes(value, rng)
    tree = decode(value, strict=False)
    for _ in range(times):
        paths = list(_paths(tree, ()))
        if not paths:
            break
        tree = _replaced(tree, rng.choice(paths), rng)
    return encode(tree)


def _paths(value: Any, at: Path) -> Any:
    if at:
        yield at
    if isinstance(value, dict):
        for key in value:
            yield from _paths(value[key], (*at, key))
    elif isinstance(value, list):
        for index in range(min(len(value), 40)):
            yield from _paths(value[index], (*at, index))


def _replaced(tree: Any, path: Path, rng: random.Random) -> Any:
    parent = tree
    for step in path[:-1]:
        parent = parent[step]
    kind = rng.randrange(12)
    if kind == 0:
        del parent[path[-1]]
    elif kind == 1 and isinstance(parent, list):
        parent.insert(path[-1], parent[rng.randrange(len(parent))])
    else:
        parent[path[-1]] = _other(parent[path[-1]], rng)
    return tree


def _other(value: Any, rng: random.Random) -> Any:
    kind = rng.randrange(10)
    if kind == 0:
        return rng.choice([*OTHERS, BAD_TEXT, DEEP, *NUMBERS, *FLOATS])
    if isinstance(value, bool):
        return not value
    if isinstance(value, bytes):
        return _other_column(value, rng)
    if isinstance(value, int):
        return rng.choice([value + 1, value - 1, rng.getrandbits(rng.randint(1, 63)), *NUMBERS])
    if isinstance(value, float):
        return rng.choice([value + 1e6, -value, value * 2, *FLOATS])
    if isinstance(value, str):
        return rng.choice([value + "x", value[:-1], "y" * rng.choice([1, 257, 1025, 140_000]), "\0'\"\n"])
    if isinstance(value, list):
        return rng.choice([value[:-1], value * 2, value[::-1], []])
    return rng.choice([*OTHERS, *NUMBERS, *FLOATS])


def _other_column(value: bytes, rng: random.Random) -> bytes:
    """Return packed numbers that are fewer, more, or others."""
    width = rng.choice([1, 2, 4, 8])
    return rng.choice(
        [
            b"",
            value[: len(value) // 2],
            value[: len(value) // 100 // 8 * 8],
            value[:-width],
            value + bytes(width),
            value * 3,
            b"\xff" * len(value),
            rng.randbytes(len(value)),
            value[:8] * (len(value) // 8),
            struct.pack("<d", rng.choice(FLOATS)) * (len(value) // 8),
            _other_bytes(value, rng),
        ]
    )


def _other_bytes(value: bytes, rng: random.Random) -> bytes:
    changed = bytearray(value)
    for _ in range(rng.randint(1, 4)):
        if changed:
            changed[rng.randrange(len(changed))] = rng.randrange(256)
    cut = rng.randrange(8)
    if cut == 0:
        return bytes(changed[: rng.randrange(len(changed) + 1)])
    return bytes(changed) + (rng.randbytes(rng.randint(1, 20)) if cut == 1 else b"")
