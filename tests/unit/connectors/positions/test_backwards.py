"""A log that is read from its end, part after part, says what it says from its beginning."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from connectors.order.records import Mention
from connectors.positions.backwards import Backwards
from connectors.positions.ledger import advance
from connectors.sources import SourceKey
from schemas.positions import PositionRecord

mentions = st.lists(
    st.builds(
        Mention,
        st.sampled_from([("a", 0), ("a", 1), ("b", 0)]),
        st.integers(1, 3),
        st.none() | st.integers(0, 5),
        st.integers(0, 99),
        st.booleans(),
    ),
    max_size=25,
)


@given(mentions, st.lists(st.integers(0, 25), max_size=4))
def test_positions_are_those_of_reading_forwards(log: list[Mention], cuts: list[int]) -> None:
    forwards: dict[SourceKey, PositionRecord] = {}
    for mention in log:
        fresh = PositionRecord(*mention.source, partition=3, offset=len(log) - 1)
        advance(forwards.setdefault(mention.source, fresh), mention)
    backwards = Backwards(3, len(log))
    bounds = [0, *sorted(min(cut, len(log)) for cut in cuts), len(log)]
    for first, end in reversed([*pairwise(bounds)]):
        for mention in log[first:end]:
            backwards.add(mention)
        backwards.part_read()
    assert backwards.positions == forwards


def test_the_newest_part_alone_tells_where_its_sources_are() -> None:
    backwards = Backwards(3, 10)
    backwards.add(Mention(("a", 0), 7, 4, 44, False))
    backwards.add(Mention(("a", 0), 7, None, 0, False))
    backwards.part_read()
    assert [*backwards.positions.values()] == [PositionRecord("a", 0, 3, 9, 7, 4, 44)]


def test_a_life_whose_numbers_are_not_reached_ends() -> None:
    backwards = Backwards(3, 10)
    for source, seq in ((("a", 0), 4), (("b", 0), None)):
        backwards.add(Mention(source, 7, seq, 44, False))
    backwards.part_read()
    backwards.given_up()
    assert [(position.seq, position.closed) for position in backwards.positions.values()] == [
        (4, False),
        (None, True),
    ]
