"""Figures that stand on several boards are one, and the checker finds each that is not."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any, NamedTuple

import msgspec
import pytest

from pipeline.dashboards.boards import BOARDS
from pipeline.local.clickhouse.embedded import EmbeddedStore
from schemas.rows import OccupancyRow, Row, StreamHealthRow
from schemas.setting_rows import FleetSettingRow, ModelRow
from schemas.settings import Settings
from tests.support.boards.contradictions import contradictions
from tests.support.boards.shown import Shown
from tests.support.inputs import crowd
from tests.support.inputs.board_rows import (
    HOUR,
    WINDOWS,
    RunSql,
    hour_of_rows,
    remembering,
    runner,
    write_rows,
)
from tests.support.inputs.empty_tables import EmptyTables
from tests.support.suite.night import at_night

ANNOTATIONS = {annotation.id: annotation for board in BOARDS for annotation in board.annotations}
END = HOUR + timedelta(minutes=59, seconds=59)
HALF = HOUR + timedelta(seconds=5 * WINDOWS)
RANGES = {
    "the hour": (HOUR, END),
    "its second half": (HALF, END),
    "minutes": (HOUR - timedelta(hours=8), HOUR + timedelta(hours=1) - timedelta(seconds=1)),
    "hours": (HOUR - timedelta(days=3), HOUR + timedelta(hours=1) - timedelta(seconds=1)),
}


class Altered(NamedTuple):
    """A result in which one column is other than the store says."""

    column_names: Sequence[str]
    result_rows: Sequence[Sequence[Any]]


def altering(run: RunSql, owner: str, column: str, change: Callable[[Any], Any]) -> Callable[..., Any]:
    """Ask, and change a column of what one panel is answered."""

    def asked(asking: str, sql: str, **chosen: Any) -> Any:
        found = run(asking, sql, **chosen)
        if asking != owner:
            return found
        place = [*found.column_names].index(column)
        rows = [
            [change(each) if at == place else each for at, each in enumerate(row)]
            for row in found.result_rows
        ]
        return Altered(found.column_names, rows)

    return asked


def hybrid_rows() -> list[Row]:
    """A hybrid, a: two groups, fine blocks beside the coarse ones, and a tier that tells no size.

    Beside it b: 120 of 100 blocks, as removals are missing, batches lost in the 34th minute, and prompts
    that were announced again, so that its disk holds no less than is counted. The group of its tier has no
    blocks on the GPU that would tell their size.
    """
    found: list[Row] = [FleetSettingRow("horizon_seconds", 3600.0, 1), ModelRow("m", 1 << 20, 1)]
    for row in hour_of_rows():
        if isinstance(row, OccupancyRow):
            if row.medium == "cpu":
                group = 7 if row.replica == "b" else 0
                row = msgspec.structs.replace(row, block_size=0, tokens=0, group_idx=group)
            elif row.replica == "b":
                row = msgspec.structs.replace(row, entries=120, blocks=110, tokens=1760, at_least=True)
                on_disk = {"medium": "disk", "capacity_blocks": 0, "entries": 5, "blocks": 5, "tokens": 80}
                found.append(msgspec.structs.replace(row, **on_disk))
            else:
                coarse = msgspec.structs.replace(
                    row, block_size=160, capacity_blocks=24, entries=6, blocks=6, tokens=960
                )
                found.append(coarse)
                found.append(msgspec.structs.replace(coarse, group_idx=1, entries=5, blocks=4, tokens=640))
                row = msgspec.structs.replace(
                    row, block_size=16, capacity_blocks=24, entries=300, blocks=250, tokens=4000
                )
        if isinstance(row, StreamHealthRow) and row.replica == "b":
            trust = "degraded" if HOUR <= row.window < HOUR + timedelta(minutes=40) else "complete"
            lost = 3 if row.window == HOUR + timedelta(minutes=34) else 0
            row = msgspec.structs.replace(row, trust=trust, lost_batches=lost)
        found.append(row)
    return found


@pytest.fixture(scope="module")
def hybrid(store: EmbeddedStore, empty_tables: EmptyTables) -> Iterator[Shown]:
    """What boards show of it."""
    with empty_tables.lent() as settings:
        write_rows(settings, hybrid_rows())
        yield Shown(remembering(runner(store, settings)), HOUR, END)


# By day what a hybrid adds to the same rows is looked through, below.
@pytest.mark.parametrize("name", at_night(RANGES))
def test_the_boards_of_the_hour_do_not_contradict_each_other(filled: RunSql, name: str) -> None:
    assert contradictions(Shown(filled, *RANGES[name])) == []


@pytest.mark.night
def test_those_of_many_models_and_replicas_do_not(store: EmbeddedStore, own: Settings) -> None:
    write_rows(own, crowd.rows())
    start = crowd.DAY
    end = start + timedelta(seconds=crowd.SECONDS - 1)
    assert contradictions(Shown(runner(store, own), start, end)) == []


FAULTS: dict[str, tuple[str, str, Callable[[Any], Any], str]] = {
    "a share that was forgotten": ("fleet-replicas", "routing %", lambda _: 0.0, "shares of a replica"),
    "fills on one board alone": ("model-fills", "capacity", lambda each: each + 1, "fills are the same"),
    "a part that goes nowhere": ("fleet-flow", "tokens", lambda each: each + 7, "fills are the same"),
    "an answer of its own": ("briefing", "value", lambda each: each and each / 2, "the answer is that"),
    "more found than lost": ("briefing", "tokens", lambda each: 1000 * each, "no more than the answer"),
    "a second bound": ("briefing", "at_most", lambda each: each + 9999, "one figure and one bound"),
    "use above 100 %": ("fleet-gpu-full", "full", lambda _: 1.4, "beyond its capacity"),
    "tokens of nobody": ("fleet-occupancy", "tokens", lambda each: each and 2 * each, "what is held"),
    "another cost": ("fleet-costs", "GPU-hours lost", lambda each: each + 1, "costs are those"),
    "a curve above its bound": ("model-capacity-gain", "at most %", lambda _: 1.0, "a curve is below"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_contradicts_is_found(hybrid: Shown, fault: str) -> None:
    panel, column, change, said = FAULTS[fault]
    found = contradictions(Shown(altering(hybrid.ask, panel, column, change), HOUR, END))
    assert [line for line in found if said.replace(" ", "_") in line], found


def test_what_is_held_counts_once_and_fits(hybrid: Shown) -> None:
    columns = (
        "replica, medium, entries, blocks, smaller_blocks, capacity_blocks, capacity_tokens, tokens, is_bound"
    )
    at = f"from = {int(END.timestamp()) - 9}, to = {int(END.timestamp())}"
    held = hybrid.ask("held", f"SELECT {columns} FROM held({at}) ORDER BY ALL").result_rows
    assert held == [
        ("a", "cpu", 10, 10, 0, 0, 0, 1600, False),
        # Of 960 + 4,000 tokens no more than 24 blocks have room for; six and five blocks are in use.
        ("a", "gpu", 11, 10, 250, 24, 3840, 3840, True),
        ("b", "cpu", 10, 10, 0, 0, 0, None, False),
        ("b", "disk", 5, 5, 0, 0, 0, 80, False),
        ("b", "gpu", 120, 110, 0, 100, 1600, 1600, True),
    ]
    assert {(row["medium"], row["tokens"]) for row in hybrid.panel("fleet-occupancy")} == {
        ("≈ gpu", 3840.0 + 1600.0),
        ("≥ disk", 80.0),
        ("≥ cpu, as far as known", 1600.0),
    }
    of_a = hybrid.panel("replica-occupancy", replica=["a"])
    assert {row["medium"] for row in of_a} == {"≤ gpu", "≥ cpu"}
    # 11 of 24 blocks of 160 tokens, and all of 100 blocks of 16.
    (full,) = hybrid.panel("fleet-gpu-full")
    assert full["full"] == pytest.approx((3840 * 11 / 24 + 1600) / 5440)
    of_b = hybrid.panel("replica-gpu-blocks", replica=["b"])
    assert {(row["in use"], row["beyond capacity"]) for row in of_b} == {(100.0, 20.0)}
    assert contradictions(hybrid) == []


def test_what_was_lost_says_until_when_causes_are_unknown(hybrid: Shown) -> None:
    until = HOUR + timedelta(minutes=100)
    (data,) = [line for line in hybrid.briefing("answer") if line["title"] == "Data"]
    assert data["detail"] == (
        f"newest rows 0 s old; causes at b may be unknown until {until:%H:%M} UTC, "
        f"because events of {HOUR + timedelta(minutes=34):%H:%M} UTC were lost"
    )
    assert data["figure"] == "2 of 2 complete"
    told: dict[str, datetime] = {
        row["replica"]: row["unknown until"] for row in hybrid.panel("fleet-replicas")
    }
    assert told["a"] is None
    assert told["b"].replace(tzinfo=timezone.utc) == until
    marked = ANNOTATIONS["fleet-restarts"]
    marks = {row["text"]: row["time"] for row in hybrid.rows("fleet-restarts", marked.sql)}
    again = f"complete again: b; causes there may be unknown until {until:%H:%M} UTC"
    assert marks[again].replace(tzinfo=timezone.utc) == HOUR + timedelta(minutes=40)
    assert marks["events of b were lost"].replace(tzinfo=timezone.utc) == HOUR + timedelta(minutes=34)
    (routing,) = [found for found in hybrid.briefing("finding") if found["kind"] == "routing"]
    assert f"causes at b may be unknown until {until:%H:%M} UTC" in routing["caveat"]
