"""Block hashes: chained, and shown as engines show them."""

from __future__ import annotations

import hashlib
import struct

from hypothesis import given
from hypothesis import strategies as st

from pipeline.simulator.wire.hashing import chain_digests, rendered, seed_digest

SEED = seed_digest("0")


@given(st.lists(st.integers(0, 200_000), max_size=70), st.integers(1, 9), st.none() | st.just("adapter"))
def test_each_digest_covers_its_whole_prefix(tokens: list[int], size: int, extra: str | None) -> None:
    digests = chain_digests(SEED, tokens, size, extra)
    assert len(digests) == len(tokens) // size
    parent = SEED
    for number, digest in enumerate(digests):
        block = tokens[number * size : (number + 1) * size]
        suffix = b"" if extra is None else b"\x00" + extra.encode()
        parent = hashlib.sha256(parent + struct.pack(f"={size}I", *block) + suffix).digest()
        assert digest == parent


def test_seed_adapter_and_history_change_the_hash() -> None:
    tokens = list(range(8))
    plain = chain_digests(SEED, tokens, 4)
    assert plain != chain_digests(seed_digest("1"), tokens, 4)
    assert plain != chain_digests(SEED, tokens, 4, "adapter")
    other = chain_digests(SEED, [9, *tokens[1:]], 4)
    assert plain[1] != other[1]


def test_forms() -> None:
    digest = bytes(range(0x80, 0xA0))
    assert rendered(digest, "uint64") == 0x98999A9B9C9D9E9F
    assert rendered(digest, "int64") == 0x8081828384858687 - 2**64
    assert rendered(digest, "bytes32") == digest
    assert rendered(digest, "bytes16") == digest[16:]
    assert rendered(digest, "mixed", "gpu") == 0x98999A9B9C9D9E9F
    assert rendered(digest, "mixed", "cpu") == digest
