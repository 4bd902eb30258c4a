"""The plan of a campaign follows from its seed, and is fair to every kind of fault."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.system.faults.campaign.kinds.catalogue import KINDS, STRIKES
from tests.system.faults.campaign.plan import Episode, Kind, PlannedFault, plan


def faults_of(episodes: list[Episode]) -> list[PlannedFault]:
    return [fault for episode in episodes for fault in episode.faults]


def test_seed_decides_everything() -> None:
    assert plan(7, 60, KINDS) == plan(7, 60, KINDS)
    assert plan(7, 60, KINDS) != plan(8, 60, KINDS)


@pytest.mark.parametrize("count", [1, 5, len(KINDS), 100, 251])
def test_every_kind_comes_as_often_as_the_others(count: int) -> None:
    faults = faults_of(plan(3, count, KINDS))
    assert [fault.number for fault in faults] == list(range(1, count + 1))
    often = Counter(fault.kind for fault in faults)
    least = min(often[kind] for kind in KINDS)
    assert least == count // len(KINDS)
    assert max(often.values()) <= least + 1


def test_faults_at_a_time_strike_different_parts() -> None:
    episodes = plan(5, 400, KINDS)
    together = [episode for episode in episodes if len(episode.faults) > 1]
    assert together
    assert all(one.faults[0].kind.part != one.faults[1].kind.part for one in together)
    assert any(episode.waits for episode in episodes)
    assert any(not episode.waits for episode in episodes)


def test_what_a_fault_needs_is_not_struck_beside_it() -> None:
    """A topic is not deleted at a broker that the first fault keeps away."""
    needy = [kind for kind in KINDS if kind.needs]
    pairs = [one.faults for seed in range(50) for one in plan(seed, 100, KINDS) if len(one.faults) > 1]
    for first, second in pairs:
        assert first.kind.needs != second.kind.part
        assert second.kind.needs != first.kind.part
    assert {fault.kind for pair in pairs for fault in pair} >= set(needy)


def test_faults_last_as_long_as_their_kind_says() -> None:
    kind = Kind("store away", "store", (2.0, 3.0))
    faults = faults_of(plan(1, 50, [kind]))
    assert all(2.0 <= fault.seconds <= 3.0 for fault in faults)
    assert len({fault.seed for fault in faults}) == 50


def test_each_kind_has_one_name_and_is_done_somehow() -> None:
    assert len({kind.name for kind in KINDS}) == len(KINDS)
    assert list(STRIKES) == [kind.name for kind in KINDS]
