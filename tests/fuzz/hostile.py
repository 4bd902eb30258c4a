"""Values that stand at the edges of what a field may be, and bytes that are no value at all."""

from __future__ import annotations

import random
import struct
from typing import Any

from tests.fuzz.msgpack_writer import Pairs, Verbatim

INTEGERS = (
    *(0, 1, -1, 16, 127, 128, 255, 256, 65_535, 65_536),
    *(2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**48, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1),
    *(-32, -33, -128, -(2**31), -(2**63)),
)
TIMES = (
    *(float("nan"), float("inf"), float("-inf"), 0.0, -0.0, -1.0, 5e-324, 1.5, 1e308, -1e308),
    *(4_102_444_800.0, 10_413_792_000.0, 253_402_300_800.0, 1e11, 1e18, -62_135_596_801.0, 2.0**53),
)
TEXTS = (
    *("", "GPU", "gpu", "Cpu", "BlockStored", "BlockRemoved", "AllBlocksCleared", "type", "block_hashes"),
    *("é", "\x00", "\x1b[31m", "<script>", "'; DROP TABLE x", "x" * 31, "x" * 32, "x" * 300),
    *("y" * 1_024, "y" * 1_025, "y" * 70_000),
)
LENGTHS = (0, 1, 7, 15, 16, 255, 256, 65_535, 65_536, 2**20, 2**20 + 1, 2**31 - 1, 2**31, 2**32 - 1)
_LENGTH_HEADS = {1: b"\xc4\xc7\xd9", 2: b"\xc5\xc8\xda\xdc\xde", 4: b"\xc6\xc9\xdb\xdd\xdf"}


def digest(rng: random.Random) -> bytes:
    """Return bytes of a length that a hash may have, or just not."""
    return rng.randbytes(rng.choice((0, 1, 7, 8, 9, 16, 31, 32, 33, 64, 256)))


def nested(rng: random.Random) -> bytes:
    """Return arrays or maps in each other: some levels, or more than any stack should hold."""
    depth = rng.choice((1, 15, 16, 17, 100, 1_100, 20_000))
    return rng.choice((b"\x91", b"\x81\xa1k", b"\x92\xc0")) * depth + b"\xc0"


def lying_length(rng: random.Random) -> bytes:
    """Return the head of something that is longer or shorter than it says."""
    width = rng.choice((1, 2, 4))
    head = bytes([rng.choice(_LENGTH_HEADS[width])])
    length = rng.choice(LENGTHS) & (1 << 8 * width) - 1
    return head + length.to_bytes(width, "big") + b"\x01" * rng.choice((0, 1, 5, 40))


def anything(rng: random.Random) -> Any:
    """Return a value of any kind, or what looks like one."""
    kinds = (
        lambda: rng.choice(INTEGERS),
        lambda: rng.getrandbits(64),
        lambda: rng.choice(TIMES),
        lambda: rng.choice(TEXTS),
        lambda: digest(rng),
        lambda: rng.choice((None, True, False, [], {}, [None], [[]], [1, 2, 3], {"type": "BlockStored"})),
        lambda: Pairs(((1, 2), (None, None), ("type", "BlockRemoved"), ("type", "BlockStored"))),
        lambda: Verbatim(nested(rng)),
        lambda: Verbatim(lying_length(rng)),
        lambda: Verbatim(b"\xc1"),
        lambda: Verbatim(b"\xa4\xc3\x28\xff\xfe"),  # a text that is not UTF-8
        lambda: Verbatim(b"\xca" + rng.randbytes(4)),  # a float of four bytes
        lambda: Verbatim(b"\xcb" + rng.randbytes(8)),
        # Extensions, of a fixed length and of any.
        lambda: Verbatim(bytes([0xD4 + (size := rng.randrange(5))]) + rng.randbytes(1 + (1 << size))),
        lambda: Verbatim(struct.pack(">BIB", 0xC9, 3, 0xFF) + b"abc"),
    )
    return rng.choice(kinds)()
