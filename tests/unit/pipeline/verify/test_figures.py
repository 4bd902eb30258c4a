"""What the comparison of the figures topic with the tables finds, and what it leaves out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime, timedelta, timezone
from typing import Any, cast

import msgspec
import pytest

from pipeline.kafka.refusal import RecordRefused
from pipeline.verify.against_log import Comparison
from pipeline.verify.figures import BEFORE_THE_TOPIC, AgentsCommitted, Committed, FiguresCheck, decode_figure
from pipeline.verify.findings import BEFORE_THE_BEGINNING, EXPIRED, TOO_NEW, Findings
from pipeline.verify.progress import Progress
from pipeline.verify.topic_log import Extent
from schemas.choices import FIRST_WINS
from schemas.fleet_rows import CapacityCurveRow, ChoiceRow
from schemas.rows import FlowRow
from schemas.settings import Kafka, Settings

NOON = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)
LATER = NOON + timedelta(seconds=1)
ROW = FlowRow(NOON, "m", "r", 0, "gpu", 0, 8, 128, *[0] * 8, [1, 2], "complete", NOON, 50)
replace = msgspec.structs.replace
CHOICE = ChoiceRow(
    NOON, "m", "r", "q", "default", "", 4, 64, 64, "r", "", False, 0.0, "complete", False, FIRST_WINS - 3
)
CURVE = CapacityCurveRow(NOON, "d", "m", "r", 0, 0, 1, [16], 1, "complete", 50)


def compared(
    rows: list[Any],
    figures: list[Any],
    *,
    since: datetime = NOON,
    oldest: datetime = NOON,
    before: int = 99,
    log_since: datetime = NOON,
) -> Findings:
    """Of agents that had committed all before offset 100; the log begins at 10, that of choices at 0."""
    findings = Findings()
    check = FiguresCheck(
        rows,
        findings,
        since=since,
        oldest=oldest,
        committed=AgentsCommitted(
            Committed(10, 100, log_since),
            [Committed(0, 100), Committed(10, 100, log_since)],
            Committed(0, 100),
        ),
        before=before,
    )
    for offset, figure in enumerate(figures):
        check.apply(offset, figure)
    check.finish()
    return findings


def test_of_equal_versions_the_later_record_counts_as_in_the_tables() -> None:
    assert compared([ROW], [replace(ROW, stored_blocks=0), ROW]).equal


def test_the_newest_version_of_a_key_is_the_row() -> None:
    findings = compared([ROW], [replace(ROW, version=40, stored_blocks=7), ROW, replace(ROW, version=41)])
    assert (findings.equal, findings.compared["figures"], findings.left_out) == (True, 1, {})


@pytest.mark.parametrize(
    ("rows", "figures", "kind"),
    [
        ([ROW], [replace(ROW, stored_blocks=9)], "differs"),
        ([ROW], [ROW, replace(ROW, lifetime_hist=[3])], "differs"),
        ([ROW], [replace(ROW, version=49)], "older"),
        ([replace(ROW, version=49)], [ROW], "older"),
        ([ROW], [], "missing"),
        ([CURVE], [], "missing"),
        ([], [ROW], "unexpected"),
        ([ROW], [ROW, replace(ROW, replica="other")], "unexpected"),
    ],
)
def test_each_difference_is_found(rows: list[Any], figures: list[Any], kind: str) -> None:
    findings = compared(rows, figures)
    assert [one.kind for one in findings.kept] == [kind]
    assert findings.kept[0].key["table"] == [*rows, *figures][0].TABLE


@pytest.mark.parametrize(
    ("rows", "figures", "more", "why"),
    [
        # Written, and not committed yet.
        ([replace(ROW, version=100)], [], {}, TOO_NEW),
        ([replace(ROW, version=100)], [ROW], {"before": 0}, TOO_NEW),
        # Written, and its record removed before anybody committed.
        ([replace(ROW, version=9)], [], {}, BEFORE_THE_BEGINNING),
        # Its last record is there, and earlier ones of its window may have been removed.
        ([ROW], [], {"log_since": LATER}, BEFORE_THE_BEGINNING),
        ([ROW], [replace(ROW, version=40)], {"log_since": LATER}, BEFORE_THE_BEGINNING),
        ([CURVE], [], {"log_since": LATER}, BEFORE_THE_BEGINNING),
        # Committed after the tables were read.
        ([ROW], [ROW, replace(ROW, version=60)], {"before": 1}, TOO_NEW),
        ([ROW], [], {"since": LATER}, BEFORE_THE_TOPIC),
        ([], [ROW], {"oldest": LATER}, EXPIRED),
    ],
)
def test_what_cannot_be_compared_is_left_out(
    rows: list[Any], figures: list[Any], more: dict[str, Any], why: str
) -> None:
    findings = compared(rows, figures, **more)
    assert findings.equal
    assert findings.left_out == {why: 1}


@pytest.mark.parametrize("figures", [[], [replace(CURVE, needed_hist=[17])]])
def test_what_the_log_has_is_compared_though_another_shard_has_lost_its_beginning(figures: list[Any]) -> None:
    assert not compared([replace(CURVE, shard=0)], figures, log_since=LATER).equal


def test_of_a_request_posted_again_the_first_record_counts_as_in_the_table() -> None:
    again = replace(CHOICE, time=NOON + timedelta(seconds=3), version=FIRST_WINS - 7)
    assert compared([CHOICE], [CHOICE, again]).equal
    assert [one.kind for one in compared([CHOICE], [again]).kept] == ["older"]


def test_records_that_say_no_row_are_refused() -> None:
    deep = b'{"x":' + b"[" * 50_000
    for value in (
        None,
        b"{",
        b"[]",
        b"{}",
        b'{"table":"models"}',
        b'{"table":"flow_10s"}',
        b'{"table":"\xff"}',
        deep,
    ):
        with pytest.raises(RecordRefused):
            decode_figure(value, (), None)
    value = b'{"table":"flow_10s",' + msgspec.json.encode(ROW)[1:]
    assert decode_figure(value, (), None) == ROW


class Log:
    """A topic of figures with one partition, and the table of the rows that belong to it."""

    partitions = 1

    def __init__(self, rows: list[Any], figures: list[Any]) -> None:
        self._rows, self._figures = rows, figures

    def figures_of_partition(self, _partition: int, _partitions: int) -> list[Any]:
        return self._rows

    async def extent(self, _partition: int) -> Extent:
        return Extent(0, 0)

    async def end(self, _partition: int) -> int:
        return len(self._figures)

    async def first_written_at(self, _partition: int, _begin: int) -> float | None:
        return NOON.timestamp() - 600 if self._figures else None

    async def records(self, _partition: int, begin: int, end: int) -> AsyncIterator[tuple[int, Any]]:
        for offset in range(begin, end):
            yield offset, self._figures[offset]


def of_log(rows: list[Any], figures: list[Any]) -> Findings:
    """Return what the comparison of a topic finds."""
    log = cast(Any, Log(rows, figures))
    comparison = Comparison(Settings(kafka=Kafka()), log, NOON, None, Progress(None))
    of_replicas = Committed(0, 100)
    committed = AgentsCommitted(of_replicas, [of_replicas], of_replicas)
    asyncio.run(comparison._compare_figures_of(log, 0, committed, until=0.0))
    return comparison.findings


def test_rows_of_a_topic_without_a_record_are_not_compared_and_counted() -> None:
    findings = of_log([ROW, replace(ROW, replica="other")], [])
    assert (findings.compared, findings.left_out) == ({}, {BEFORE_THE_TOPIC: 2})
    assert of_log([], []).left_out == {}


def test_what_is_set_aside_is_among_the_records() -> None:
    findings = of_log([ROW], [RecordRefused("not_a_record", "", ()), ROW])
    assert (findings.equal, findings.compared["figures"]) == (True, 1)
    assert (findings.records, findings.set_aside) == (2, {"not_a_record": 1})
