"""Every table that follows from the log: one wrong figure, one row too few, one too many, each named."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import msgspec
import pytest

from pipeline.residency.partition import PartitionState
from pipeline.verify.findings import Findings
from pipeline.verify.keys import key_of
from pipeline.verify.replica.check import SourceCheck
from pipeline.verify.times import EPOCH
from schemas.events import EventsRecord
from schemas.settings import Fleet, Worker
from tests.support import fleet_recount
from tests.support.inputs.fleet_walks import walked
from tests.support.inputs.source_walks import ObjectWalk, Walk

PLANTED = (
    ("occupancy_10s", "entries"),
    ("occupancy_10s", "blocks"),
    ("occupancy_10s", "tokens"),
    ("occupancy_10s", "capacity_blocks"),
    ("flow_10s", "stored_blocks"),
    ("flow_10s", "filled_blocks"),
    ("flow_10s", "evicted_tokens"),
    ("flow_10s", "reannounced_blocks"),
    ("flow_10s", "unknown_removed_blocks"),
    ("stream_health_10s", "last_seq"),
    ("stream_health_10s", "lost_batches"),
    ("stream_health_10s", "drift_blocks"),
    ("engine_counters", "prefix_cache_hits"),
    ("engine_counters", "prefill_tokens"),
    ("sources", "first_seq"),
    ("sources", "last_seq"),
    ("objects_10s", "bytes"),
    ("objects_10s", "hits"),
    ("fills_10s", "cold_tokens"),
    ("fills_10s", "peer_blocks"),
    ("fills_10s", "evicted_tokens"),
    ("fills_10s", "transferred_again_tokens"),
    ("redundancy_10s", "owners_1"),
    ("redundancy_10s", "physical_tokens"),
    ("redundancy_10s", "received_tokens"),
    ("capacity_curve_10s", "sampled_one_in"),
    ("hot_prefixes_10s", "shared_tokens"),
    ("hot_prefixes_10s", "owners"),
    ("hash_groups", "alike"),
    ("hash_groups", "incarnation"),
)
"""Figures; those of minutes and hours are in `tests/integration/pipeline/clickhouse/test_rollups.py`."""
TABLES = dict(PLANTED)
WORKER, FLEET = Worker(idle_carry_seconds=30.0), Fleet(horizon_seconds=60.0, compare_after=2)

Compared = tuple[Sequence[Any], Callable[[Sequence[Any]], Findings]]
"""Rows that are right, and what compares rows with their log."""


def of_source(records: list[EventsRecord]) -> Compared:
    state = PartitionState(0, WORKER, shards=2)
    table: dict[Any, Any] = {}
    for offset, record in enumerate(records):
        state.apply(offset, record)
        if offset % 3 == 0 or offset == len(records) - 1:
            table |= {key_of(row): row for row in state.cut(0.0).rows}

    def compared(rows: Sequence[Any]) -> Findings:
        findings, end = Findings(), len(records)
        check = SourceCheck(("r", 0), WORKER, rows, findings, committed=end, whole=True, oldest=EPOCH)
        for offset, record in enumerate(records):
            check.apply(offset, record)
        check.finish(0, end)
        return findings

    return list(table.values()), compared


@lru_cache
def compared_with_logs(table: str) -> Compared:
    if table == "objects_10s":
        return of_source(list(ObjectWalk(40).records(80)))
    if table not in ("fills_10s", "redundancy_10s", "capacity_curve_10s", "hot_prefixes_10s", "hash_groups"):
        return of_source(list(Walk(4).records(60)))
    steps = [(at % 3, "block", at * 7 % 5, ("gpu", 0), 2.0) for at in range(60)]
    records = walked([*steps, (0, "cut", 0, ("gpu", 0), 30.0), *steps]).records
    rows = fleet_recount.rows_of(records, FLEET)
    return rows, lambda rows: fleet_recount.compared(records, list(rows), FLEET)


@pytest.mark.parametrize(("table", "column"), PLANTED)
def test_a_wrong_figure_is_named(table: str, column: str) -> None:
    rows, compared = compared_with_logs(table)
    assert compared(rows).equal
    wrong = next(row for row in rows if table == row.TABLE)
    value = getattr(wrong, column) or 0
    planted = [
        msgspec.structs.replace(row, **{column: value + 1000}) if row is wrong else row for row in rows
    ]
    found = compared(planted)
    assert {*found.differing} == {table}
    [difference] = [one for one in found.kept if one.kind == "differs"]
    assert (difference.expected, difference.found) == (
        {column: getattr(wrong, column)},
        {column: value + 1000},
    )


@pytest.mark.parametrize("table", TABLES)
def test_a_row_that_is_missing_and_one_that_nothing_gives_are_named(table: str) -> None:
    rows, compared = compared_with_logs(table)
    last = max((row for row in rows if table == row.TABLE), key=lambda row: row.version)
    other = msgspec.structs.replace(last, model="other")
    found = compared([*(row for row in rows if row is not last), other])
    assert {(one.table, one.kind, one.key["model"]) for one in found.kept} == {
        (table, "missing", last.model),
        (table, "unexpected", "other"),
    }
