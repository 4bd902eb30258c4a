"""Compiled loops read no further than the columns of records and checkpoints go, whatever length these have.

Every array that comes from a record ends before a page that nobody may touch: to read on ends the process.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np
import pytest

from pipeline.fleet import state as fleet_state
from pipeline.fleet import waiting
from pipeline.fleet.hashing import comparison
from pipeline.fleet.kernel import due
from pipeline.fleet.state import FleetState
from pipeline.residency.counting import block_table
from pipeline.residency.counting.block_entries import BlockColumns
from pipeline.residency.counting.block_table import BlockTable
from pipeline.residency.partition import PartitionState
from schemas.residency import FILLED, KINDS, ResidencyChanges, ResidencyRecord
from schemas.settings import Fleet, Worker
from tests.support.guarded_memory import guarded, guarded_all
from tests.support.inputs.residency_walks import residency
from tests.support.inputs.source_walks import BEGAN, Walk

RECORDS = 12
COLUMNS = ("hashes", "kinds", "times", "block_sizes", "stored", "roots", "depths", "lora_codes", "ends")
LENGTHS: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda column: b"",
    "a byte short": lambda column: column[:-1],
    "an entry short": lambda column: column[:-8],
    "a hundredth": lambda column: column[: len(column) // 100],
    "a byte too long": lambda column: column + b"\0",
    "twice as long": lambda column: column * 2,
}
OPTIONAL = ("stored", "roots", "depths", "lora_codes", "ends")


def guard(monkeypatch: pytest.MonkeyPatch, module: Any, name: str, arguments: Sequence[int]) -> list[int]:
    """Give a compiled function those arguments in guarded memory; return a list that grows with each call."""
    compiled, calls = getattr(module, name), []

    def called(*given: Any) -> Any:
        calls.append(len(given))
        return compiled(*(guarded_all(one) if at in arguments else one for at, one in enumerate(given)))

    monkeypatch.setattr(module, name, called)
    return calls


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[int]]:
    """Compiled functions that take columns of records, and their calls so far."""
    return {
        "follow": guard(monkeypatch, fleet_state, "follow", (7, 8)),
        "match": guard(monkeypatch, comparison, "_match", (3, 4)),
        "unpack": guard(monkeypatch, waiting, "unpack", (0, 1)),
        "take_due": guard(monkeypatch, due, "_take_due", (1,)),
        "gather": guard(monkeypatch, due, "_gather", (1, 2)),
        "count_copies": guard(monkeypatch, block_table, "count_copies", (3, 4)),
        "put_entries": guard(monkeypatch, block_table, "put_entries", (4,)),
    }


def fleet_rows(records: Sequence[ResidencyRecord]) -> list[str]:
    state = FleetState(0, Fleet(), carry_seconds=60.0)
    for offset, record in enumerate(records):
        assert state.refusal(record) is None
        state.apply(offset, record)
    return [repr(row) for row in state.cut(BEGAN).rows]


def replica_rows(records: Sequence[Any]) -> list[str]:
    state = PartitionState(0, Worker(), shards=2)
    for offset, record in enumerate(records[: len(records) // 2]):
        state.apply(offset, record)
    state.leaves()
    latest = dict(state.cut(BEGAN).checkpoints)
    state = PartitionState.restore(0, Worker(), shards=2, latest=latest)
    for offset, record in enumerate(records[len(records) // 2 :], state.next_offset):
        state.apply(offset, record)
    return [repr(row) for row in state.cut(BEGAN).rows]


def test_memory_is_guarded() -> None:
    array = guarded(np.arange(3, dtype=np.uint64))
    assert array.tolist() == [0, 1, 2]
    assert (array.ctypes.data + array.nbytes) % 4096 == 0


def test_fitting_columns_are_read_to_their_end_and_no_further(
    request: pytest.FixtureRequest,
) -> None:
    rng = random.Random(3)
    records = [residency(offset, rng) for offset in range(RECORDS)]
    for record in records[1::3]:
        for source in record.sources:
            for changes in source.changes:
                for name in rng.sample(OPTIONAL, 2):
                    setattr(changes, name, b"")
    walk = list(Walk(3).records(60))
    without = fleet_rows(records), replica_rows(walk)
    calls = request.getfixturevalue("calls")
    assert (fleet_rows(records), replica_rows(walk)) == without
    assert all(calls.values()), calls


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("column", COLUMNS)
def test_columns_of_another_length_come_no_further_than_the_check(
    calls: dict[str, list[int]], column: str, length: str
) -> None:
    state = FleetState(0, Fleet(), carry_seconds=60.0)
    good, bad = residency(0, random.Random(4)), residency(1, random.Random(4))
    state.apply(0, good)
    parts = [part for source in bad.sources for part in source.changes]
    changes = max(parts, key=lambda part: part.kinds.count(FILLED))
    setattr(changes, column, LENGTHS[length](getattr(changes, column)))
    before = {name: len(made) for name, made in calls.items()}
    refusal = state.refusal(msgspec.msgpack.decode(msgspec.msgpack.encode(bad), type=ResidencyRecord))
    if column in OPTIONAL and not getattr(changes, column):
        assert refusal is None, "a column that need not be there"
        state.apply(1, bad)
    else:
        assert refusal in ("uneven_columns", "bad_change")
        assert {name: len(made) for name, made in calls.items()} == before


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("times", np.array([np.nan]).tobytes()),
        ("times", np.array([np.inf]).tobytes()),
        ("times", np.array([-1.0]).tobytes()),
        ("times", np.array([1e300]).tobytes()),
        ("lora_codes", b"\xff\xff"),
        ("lora_codes", b"\x01\x00"),
    ],
)
def test_values_that_name_nothing_are_refused(column: str, value: bytes) -> None:
    changes = ResidencyChanges(
        "gpu", 0, bytes(8), bytes([FILLED]), np.array([BEGAN]).tobytes(), b"\x10\0\0\0", roots=bytes(8)
    )
    setattr(changes, column, value)
    record = residency(0, random.Random(5))
    assert FleetState(0, Fleet(), carry_seconds=1.0).refusal(record) is None
    record.sources[0].changes = [changes]
    assert FleetState(0, Fleet(), carry_seconds=1.0).refusal(record) == "bad_change"


def test_a_change_of_no_known_kind_is_refused() -> None:
    record = residency(0, random.Random(5))
    record.sources[0].changes = [
        ResidencyChanges("gpu", 0, bytes(8), bytes([max(KINDS) + 1]), bytes(8), bytes(4))
    ]
    assert FleetState(0, Fleet(), carry_seconds=1.0).refusal(record) == "bad_change"


@pytest.mark.parametrize("length", [0, 1, 9, 11, 1000])
@pytest.mark.parametrize("column", range(1, 7))
def test_entries_of_uneven_columns_are_not_set(column: int, length: int) -> None:
    kinds = (np.uint64, np.int32, float, np.uint16, np.uint64, np.uint16, np.uint64)
    columns = [guarded(np.ones(10, kind)) for kind in kinds]
    columns[column] = guarded(np.ones(length, columns[column].dtype))
    table = BlockTable(spread=1)
    with pytest.raises(ValueError, match="different lengths"):
        table.put(BlockColumns(*columns))
    assert table.blocks == 0
