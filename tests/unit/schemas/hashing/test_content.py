"""Content hashes: fixed vectors that clients in other languages can check, and what makes hashes differ."""

from __future__ import annotations

from hashlib import blake2b

import pytest

from schemas.hashing.content import Content, follow, link
from schemas.hashing.errors import NotComputable
from schemas.hashing.vllm_keys import Item, Lora, Request

PROMPT = list(range(100, 148))
KEY = bytes(range(32))
VECTORS = ["0155d70bc179ab8c", "f6c39032451e4086", "832221c17fb63615"]
KEYED_VECTORS = ["010a5ec31ccc3a12", "554c4720e7eca0f2", "d8176379407df129"]
"""For clients in other languages: these never change."""


def test_links_are_blake2b_of_the_documented_message() -> None:
    tokens = [1, 70_000, 0]
    message = bytes.fromhex("03000000 04000000 02000000 01000000 70110100 00000000") + b"rank" + b"\x91\x07"
    plain = blake2b(message, digest_size=8, person=b"kvlens-content-1").digest()
    keyed = blake2b(message, digest_size=8, person=b"kvlens-content-1", key=KEY).digest()
    assert link(tokens, "rank", b"\x91\x07") == int.from_bytes(plain, "big")
    assert link(tokens, "rank", b"\x91\x07", key=KEY) == int.from_bytes(keyed, "big")


def test_a_long_key_counts_as_its_digest() -> None:
    long = b"k" * 65
    assert link([1], key=long) == link([1], key=blake2b(long).digest())


def test_the_finaliser_is_that_of_splitmix64() -> None:
    # What SplitMix64 gives first for the states 0 and 1234567: Vigna's published generator.
    assert follow(0, 0x9E3779B97F4A7C15) == 0xE220A8397B1DCDAF
    assert follow(0, 1234567 + 0x9E3779B97F4A7C15) == 6457827717110365317
    assert follow(1, 0) == 0xE220A8397B1DCDAF


def test_vectors() -> None:
    assert [f"{word:016x}" for word in Content(16).words(PROMPT)] == VECTORS
    assert [f"{word:016x}" for word in Content(16, KEY).words(PROMPT)] == KEYED_VECTORS


def test_hashes_cover_all_that_came_before() -> None:
    whole = Content(16).words(PROMPT)
    assert Content(16).words(PROMPT[:40]) == whole[:2]
    assert Content(16).words(PROMPT[16:])[0] not in whole
    other = Content(16).words([PROMPT[0] + 1, *PROMPT[1:]])
    assert not {*other} & {*whole}


def test_other_block_sizes_never_match() -> None:
    assert not {*Content(16).words(PROMPT)} & {*Content(8).words(PROMPT), *Content(48).words(PROMPT)}


@pytest.mark.parametrize(
    ("request_", "first_other"),
    [
        (Request(lora=Lora("sql")), 0),
        (Request(salt="s"), 0),
        (Request(items=[Item("cat.png", 20, 4)]), 1),
    ],
    ids=["adapter", "salt", "item"],
)
def test_what_else_counts(request_: Request, first_other: int) -> None:
    plain, other = Content(16).words(PROMPT), Content(16).words(PROMPT, request_)
    assert plain[:first_other] == other[:first_other]
    assert not {*plain[first_other:]} & {*other[first_other:]}


def test_an_adapter_is_no_key_of_the_same_bytes() -> None:
    assert link([7], lora="ab") != link([7], keys=b"ab")
    assert link([7], "a", b"b") != link([7], "ab")


@pytest.mark.parametrize("tokens", [[], [-1], [1 << 32]])
def test_what_has_no_link(tokens: list[int]) -> None:
    with pytest.raises(NotComputable):
        link(tokens)


def test_blocks_have_tokens() -> None:
    with pytest.raises(NotComputable):
        Content(0)
