"""A large head is put together from its pieces again, and little of it is written when little changes."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from pipeline.residency.checkpoint.head_pieces import MOST_BYTES, HeadPieces, cut
from tests.support.suite.night import examples

edits = st.lists(st.tuples(st.floats(0, 1), st.integers(0, 3000), st.integers(0, 3000)), max_size=8)


@examples(50)
@given(st.integers(0, 2**32), st.integers(0, 100_000), edits, st.integers(1, 4))
def test_every_head_is_whole_in_the_log(seed: int, size: int, changes: object, repeated: int) -> None:
    rng = random.Random(seed)
    head = rng.randbytes(size) * repeated
    pieces, log = HeadPieces(), {}
    for place, gone, come in [(0.0, 0, 0), *changes]:  # type: ignore[misc]
        at = int(place * len(head))
        head = head[:at] + rng.randbytes(come) + head[at + gone :]
        order, written = pieces.changed(head)
        assert len({number for number, _ in written}) == len(written)
        log.update(written)
        assert b"".join(log[number] for number in order) == head


def test_what_comes_and_goes_costs_its_surroundings() -> None:
    rng = random.Random(1)
    head, pieces = rng.randbytes(1_000_000), HeadPieces()
    assert sum(len(piece) for _, piece in pieces.changed(head)[1]) == len(head)
    for _ in range(50):
        at = rng.randrange(len(head))
        head = head[300:at] + rng.randbytes(200) + head[at:] + rng.randbytes(100)
        written = pieces.changed(head)[1]
        assert sum(len(piece) for _, piece in written) < 60_000
        assert max(number for number, _ in written) < 1000


def test_bytes_that_repeat_are_cut_as_well() -> None:
    pieces = cut(bytes(1_000_000))
    assert b"".join(pieces) == bytes(1_000_000)
    assert max(map(len, pieces)) <= MOST_BYTES
    assert len(set(pieces)) < 3
    assert cut(b"") == []
