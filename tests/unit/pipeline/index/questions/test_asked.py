"""Questions that the compiled reader takes are those that the decoder reads; it refuses nothing itself."""

from __future__ import annotations

import json
import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.index.questions.chains import AT_ONCE_HASHES, AT_ONCE_PROMPTS, Chains, chains_of, hashes_of
from pipeline.index.questions.digits import read_digits
from pipeline.index.questions.question import Asked, asked, parsed
from pipeline.index.questions.refused import QuestionRefused

MOST = 50
NUMBERS = st.one_of(
    st.integers(0, 2**64 - 1),
    st.integers(-(2**63), -1),
    st.sampled_from([0, 2**63, 2**64 - 1, -(2**63), 2**64, 2**64 + 5, -(2**63) - 1, 10**19, 10**20 - 1]),
)
HASHES = st.one_of(NUMBERS, st.text("0123456789abcdefx", max_size=20), st.floats(), st.none(), st.booleans())


def outcome(body: bytes) -> tuple[list[list[int]], bool, str] | tuple[str, str]:
    try:
        return _lists(asked(body, most_hashes=MOST))
    except QuestionRefused as refused:
        return refused.reason, refused.detail


def expected(body: bytes) -> tuple[list[list[int]], bool, str] | tuple[str, str]:
    """Return the same by the JSON decoder alone."""
    try:
        question = parsed(body, most_hashes=MOST)
        chains = [hashes_of(chain).tolist() for chain in question.chains]
        return chains, question.prompts is not None, question.asked_model
    except QuestionRefused as refused:
        return refused.reason, refused.detail


def _lists(found: Asked) -> tuple[list[list[int]], bool, str]:
    hashes, ends = found.chains.hashes.tolist(), found.chains.ends.tolist()
    chains = [hashes[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]
    return chains, found.several, found.about.asked_model


@given(
    st.dictionaries(
        st.sampled_from(["block_hashes", "seq_hashes", "prompts", "model", "model_name", "other"]),
        st.one_of(st.lists(HASHES, max_size=9), st.lists(st.lists(NUMBERS, max_size=9), max_size=9), HASHES),
        max_size=3,
    ),
    st.sampled_from([None, 0, 2, "\t"]),
)
def test_any_json(question: dict[str, object], indent: int | str | None) -> None:
    body = json.dumps({"model": "m", **question}, indent=indent).encode()
    assert outcome(body) == expected(body)


@given(st.lists(st.lists(NUMBERS, max_size=12), max_size=12), st.randoms(use_true_random=False))
def test_any_text_of_numbers(prompts: list[list[int]], rng: random.Random) -> None:
    """Spaces where JSON allows them, and one byte that may be any other."""
    spaced = "".join(part + rng.choice(["", " ", "\n\r\t "]) for part in _parts(prompts))
    text = bytearray(spaced if rng.random() < 0.3 else json.dumps(prompts), "ascii")
    if rng.random() < 0.5 and text:
        text[rng.randrange(len(text))] = rng.choice(b'[],-0123456789 .eE"n{}\x00\xff')
    body = b'{"model": "m", "prompts": ' + bytes(text) + b"}"
    assert outcome(body) == expected(body)


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "[",
            "]",
            "[1",
            "[1,",
            "[1,]",
            "[,1]",
            "[1 2]",
            "[1]]",
            "[[1]]",
            "[01]",
            "[-]",
            "[--1]",
            "[+1]",
        ),
        *("[1.0]", "[1e3]", '["1"]', "[null]", "[18446744073709551616]", "[-9223372036854775809]", "1", "{}"),
        "[184467440737095516150]",
    ],
)
def test_unsure(text: str) -> None:
    assert read_digits(text.encode(), several=False, most_hashes=MOST) is None


def test_bounds() -> None:
    """As many hashes as are allowed, and one more; chains that are empty count, too."""
    for several, text in ((False, json.dumps([7] * MOST)), (True, json.dumps([[7]] * MOST))):
        found = read_digits(text.encode(), several=several, most_hashes=MOST)
        assert found is not None
        assert found.hashes.tolist() == [7] * MOST
        assert read_digits(text.encode(), several=several, most_hashes=MOST - 1) is None
    empty = read_digits(b"[ [ ] , [] ]", several=True, most_hashes=MOST)
    assert empty is not None
    assert (empty.hashes.tolist(), empty.ends.tolist()) == ([], [0, 0])


@given(st.lists(st.integers(0, 3 * AT_ONCE_HASHES // 2), max_size=5), st.integers(0, 3 * AT_ONCE_PROMPTS))
def test_portions_are_all_prompts_in_their_order(lengths: list[int], short: int) -> None:
    numbers = iter(range(10**9))
    chains = [[next(numbers) for _ in range(length)] for length in [*lengths, *[2] * short]]
    portions = [*chains_of(chains).portions()]
    assert [chain for portion in portions for chain in _chains(portion)] == chains
    for portion in portions:
        assert 0 < len(portion.ends) <= AT_ONCE_PROMPTS
        assert len(portion.hashes[: portion.ends[-2] if len(portion.ends) > 1 else 0]) < AT_ONCE_HASHES


def _chains(chains: Chains) -> list[list[int]]:
    hashes, ends = chains.hashes.tolist(), chains.ends.tolist()
    return [hashes[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]


def _parts(prompts: list[list[int]]) -> list[str]:
    """Return a text in parts between which JSON allows spaces."""
    return re.findall(r"-?\d+|[\[\],]", json.dumps(prompts))
