"""Tables of the index that grow before they must have the same rows afterwards."""

from __future__ import annotations

import pytest

from pipeline.fleet import index
from pipeline.fleet.index import Index
from pipeline.fleet.kernel.counts import TAIL
from pipeline.fleet.packing import rows_in
from pipeline.fleet.state import FleetState
from schemas.residency import EVICTED, FILLED
from schemas.settings import Fleet
from tests.support.inputs.residency_records import record

START = 1_800_000_000.0


def state_with(losses: int, **fleet: int) -> FleetState:
    state = FleetState(0, Fleet(**fleet), carry_seconds=60.0)
    state.apply(0, record(0, FILLED, range(1, losses + 1), START))
    state.apply(1, record(0, EVICTED, range(1, losses + 1), START + 1))
    return state


def test_losses_get_room_before_all_rows_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "LARGE", 1024)
    state = state_with(losses=900)
    before = state.index._losses_in_order()
    assert len(state.index.losses) == 1024
    errand = state.errand(START)
    assert errand is not None
    errand()
    assert len(state.index.losses) == 2048
    assert state.index._losses_in_order().tolist() == before.tolist()
    assert not state.index.wants_room(max_losses=10_000)
    # What comes back was lost for a known reason as before.
    state.apply(2, record(0, FILLED, range(1, 901), START + 2))
    other = state_with(losses=900)
    other.apply(2, record(0, FILLED, range(1, 901), START + 2))
    assert [repr(row) for row in state.cut(START + 3).rows] == [
        repr(row) for row in other.cut(START + 3).rows
    ]


@pytest.mark.parametrize(("losses", "max_ghosts"), [(700, 10_000), (1000, 1024)])
def test_losses_do_not_grow_without_need(
    losses: int, max_ghosts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index, "LARGE", 1024)
    state = state_with(losses, max_ghosts=max_ghosts)
    state.index.grow_early(max_losses=max_ghosts)
    assert len(state.index.losses) == 1024


def test_losses_beyond_a_limit_that_was_lowered_stay_until_they_leave() -> None:
    full = Index({}, rows_in({}))
    full.clock.counters[TAIL] = 150_000
    full._move_losses(1 << 21)
    full.make_room(1, blocks_each=1, max_losses=1000)
    assert len(full.losses) == 1 << 18


@pytest.mark.parametrize(("blocks", "slots"), [(600, 1024), (700, 2048), (770, 2048)])
def test_tables_that_are_loaded_do_not_want_room_at_once(
    blocks: int, slots: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index, "LARGE", 1024)
    held = state_with(losses=blocks).index
    rows = [table[table["key"] != 0] for table in (held.blocks, held.pairs)]
    loaded = Index({}, (*rows, held.losses[:0]))
    assert not loaded.wants_room(max_losses=10_000)
    for table, before in zip((loaded.blocks, loaded.pairs), rows, strict=True):
        assert len(table) == slots
        assert sorted(table[table["key"] != 0].tolist()) == sorted(before.tolist())
