"""Which of a replica's KV-cache groups counts."""

from __future__ import annotations

from pipeline.fleet.state import FleetState
from pipeline.whatif.potential import summed
from schemas.residency import EVICTED, ResidencyRecord
from schemas.settings import Fleet
from tests.support.inputs.residency_records import changes, said

AT = 1_700_000_000.0


def test_of_groups_that_filled_equally_much_the_first_counts_as_in_the_views() -> None:
    state = FleetState(0, Fleet(), carry_seconds=0.0)
    for offset, parts in enumerate(
        (
            [changes({1: AT, 2: AT}, group=1), changes({1: AT})],
            [changes({1: AT + 1}, EVICTED)],
            [changes({1: AT + 2})],
        )
    ):
        state.apply(offset, ResidencyRecord(0, 0, 0, [said("r", *parts)]))
    rows = state.cut(0.0).rows
    for given in (rows, rows[::-1]):
        found = summed(given)
        assert +found.tokens == {"cold": 16, "evicted": 16}
