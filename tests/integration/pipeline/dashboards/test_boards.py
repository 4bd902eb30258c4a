"""Every panel and alert runs on the real engine, on empty tables and on rows, and says what the rows say."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pipeline.dashboards.alerts import ALERTS
from pipeline.dashboards.boards import BOARDS
from pipeline.dashboards.grafana.dashboard import arranged
from pipeline.dashboards.panel import COLUMNS, Panel, UnknownParameter, used_parameters
from pipeline.dashboards.queries import TOP
from pipeline.local.clickhouse.embedded import EmbeddedStore
from schemas.fleet_rows import CapacityCurveRow, FillsRow
from schemas.rows import EngineCountersRow, Row, SourceRow, StreamHealthRow
from schemas.settings import Settings
from tests.support.inputs.board_rows import (
    HOUR,
    RunSql,
    hour_of_rows,
    migrated,
    runner,
    window_rows,
    write_rows,
)
from tests.support.suite.night import by_day

PANELS = {panel.id: panel for board in BOARDS for panel in board.panels}
OF_EACH_KIND = [
    panel
    for panel in {each.kind: each for each in PANELS.values()}.values()
    if panel.kind not in ("answer", "findings")
]
"""But for the two that are dear: what they say of empty tables is asked for in `advice/test_answer.py`."""
ALL_BUT_FINDINGS = [panel for panel in PANELS.values() if panel.kind != "findings"]
"""Their statement is that of the answer."""
ANNOTATIONS = {annotation.id: annotation for board in BOARDS for annotation in board.annotations}
RUNBOOK = Path("docs/alerts.md")
RANGES = {
    "ten seconds": (HOUR, HOUR + timedelta(minutes=59, seconds=59)),
    "minutes": (HOUR - timedelta(hours=8), HOUR + timedelta(hours=1)),
    "hours": (HOUR - timedelta(days=3), HOUR + timedelta(hours=1)),
}


def check_shape(panel: Panel, names: tuple[str, ...], rows: list[tuple[Any, ...]]) -> None:
    """What each kind of picture needs to be drawn."""
    if panel.kind == "stat":
        assert len(rows) == 1
        assert all(value is None or isinstance(value, int | float) for value in rows[0])
    elif panel.kind == "bar":
        assert all(isinstance(row[0], str) for row in rows)
        assert all(value is None or isinstance(value, int | float) for row in rows for value in row[1:])
    elif panel.kind == "curve":
        for name in {row[0] for row in rows}:
            curve = [row for row in rows if row[0] == name]
            assert [row[1] for row in curve] == sorted({row[1] for row in curve})
            assert [row[3] for row in curve] == sorted(row[3] for row in curve)
            assert sum(row[-1] for row in curve) == 1
    elif panel.kind == "flow":
        assert not rows or names == ("from", "into", "tokens")
        assert {row[1] for row in rows} <= panel.colours.keys()
    elif panel.kind in ("answer", "findings"):
        texts = [value for row in rows for value in row if not isinstance(value, int)]
        assert all(isinstance(value, str) for value in texts)
    elif panel.kind != "table" and rows:
        assert names[0] == "time"
        assert all(isinstance(row[0], datetime) for row in rows)
        assert [row[0] for row in rows] == sorted(row[0] for row in rows)
        if panel.kind == "heatmap":
            assert names[1:] == ("bucket", "value")
        if panel.kind == "state_timeline":
            assert names[2:] == ("state",)
            assert all(isinstance(row[2], str) for row in rows)
        elif panel.kind == "lanes":
            assert names == ("time", "place", panel.named_by, "value")
            assert len({row[1:3] for row in rows}) == len({row[1] for row in rows})
        else:
            labels = [isinstance(value, str) for value in rows[0][1:]]
            assert labels == [True, False] or not any(labels)


@pytest.mark.parametrize("panel", by_day(PANELS.values(), OF_EACH_KIND), ids=PANELS)
def test_a_panel_runs_on_empty_tables(panel: Panel, empty: RunSql) -> None:
    result = empty(panel.id, panel.sql)
    check_shape(panel, result.column_names, result.result_rows)
    if panel.kind != "stat":
        assert result.result_rows == []


def silent_ones(panels: Iterable[Panel], run: RunSql, name: str) -> set[str]:
    """Run panels over a range, look at what they return, and return those without rows."""
    silent = set()
    start, end = RANGES[name]
    for panel in panels:
        result = run(panel.id, panel.sql, **{"from": start, "to": end})
        check_shape(panel, result.column_names, result.result_rows)
        if not result.result_rows:
            silent.add(panel.id)
    return silent


@pytest.mark.parametrize(
    ("name", "panels"),
    [
        pytest.param("minutes", OF_EACH_KIND, id="minutes, one of each kind"),
        *(pytest.param(name, ALL_BUT_FINDINGS, id=name, marks=pytest.mark.night) for name in RANGES),
    ],
)
def test_panels_run_on_rows_of_every_range(filled: RunSql, name: str, panels: Sequence[Panel]) -> None:
    assert silent_ones(panels, filled, name) == set()


@pytest.mark.night
@pytest.mark.parametrize("name", RANGES)
def test_findings_are_on_rows_of_every_range(filled: RunSql, name: str) -> None:
    panels = [panel for panel in PANELS.values() if panel.kind == "findings"]
    assert panels
    assert silent_ones(panels, filled, name) == set()


def test_gpus_of_measured_and_of_assumed_rates_are_series_of_their_own(
    store: EmbeddedStore, own: Settings
) -> None:
    """Of two replicas that lose the same only one is scraped; the other's rate is that of the settings."""
    write_rows(
        own,
        [row for row in hour_of_rows() if not (isinstance(row, EngineCountersRow) and row.replica == "b")],
        rolled_up=False,
    )
    result = runner(store, own)("fleet-gpus-lost", PANELS["fleet-gpus-lost"].sql).result_rows
    # Tokens a second, at 1/16 GPU-seconds as measured, and at two GPUs that fill 1,000 a second.
    tokens = {
        "routing": 6.0,
        "routing or capacity": 0.0,
        "capacity": 2.0,
        "warm-up": 1.0,
        "receivers only": 0.0,
    }
    rates = {"measured": 1 / 16, "assumed": 2 / 1000}
    expected = {
        f"{cause}, {basis}": pytest.approx(each * rate)
        for cause, each in tokens.items()
        for basis, rate in rates.items()
    }
    times = {row[0] for row in result}
    assert len(times) == 60
    for time in times:
        assert {name: gpus for at, name, gpus in result if at == time} == expected
    assert [row[1] for row in result[: len(expected)]] == list(expected)
    assert expected.keys() == PANELS["fleet-gpus-lost"].colours.keys()


def test_figures_are_those_of_the_rows(filled: RunSql) -> None:
    def rows(panel: str, **chosen: Any) -> list[tuple[Any, ...]]:
        found: list[tuple[Any, ...]] = filled(panel, PANELS[panel].sql, **chosen).result_rows
        return found

    assert rows("fleet-sources") == [(1, 0, 1, 0)]
    assert rows("fleet-gpu-full") == [(0.5,)]
    assert {row[1:] for row in rows("fleet-occupancy")} == {("cpu", 320.0), ("gpu", 1280.0)}
    assert {row[1:] for row in rows("replica-occupancy", replica=["b"])} == {("cpu", 160.0), ("gpu", 640.0)}
    assert rows("replica-occupancy", replica=["nobody"]) == []
    assert {row[1:] for row in rows("fleet-fills")} == {(12.0, 0.0, 4.0, 2.0, 0.0, 0.0, 0.0, 0.0, 2.0, 0.0)}
    assert rows("fleet-hit-rates") == [
        ("m", 0.9, pytest.approx(0.93, abs=1e-3), pytest.approx(0.99, abs=1e-3))
    ]
    assert {row[1:] for row in rows("fleet-gpus-lost")} == {
        ("routing, measured", 0.75),
        ("routing or capacity, measured", 0.0),
        ("capacity, measured", 0.25),
        ("warm-up, measured", 0.125),
        ("receivers only, measured", 0.0),
    }
    # 90 of the 100 tokens of a window are lost, 900 found, at 1/16 GPU-seconds each.
    assert rows("fleet-costs") == [
        ("m", "default", 1.12, 11.22, 0.0, 4.05, 40.39, "EUR", "measured", 0.0, "degraded")
    ]
    assert rows("fleet-hot-prefixes") == [
        ("m", f"{0xABC:016x}", "", "sql", 32 + 48, 2 * 32, 2 * 16 * 360, 17.8, 3, 40, "complete")
    ]
    assert rows("model-replicas") == [
        (name, 21600, 0, 7200, 3600, 0, 0, 0, 0, 3600, 0) for name in ("a", "b")
    ]
    assert rows("model-capacity-gain") == [("m", 16, 0, 14400, 20.0, 20.0, True)]
    assert {row[1:] for row in rows("replica-gpu-blocks")} == {(100.0, 80.0, 200.0, None)}
    assert {row[1:] for row in rows("replica-tiers")} == {("a cpu", 30 / 80), ("b cpu", 30 / 80)}
    # Ten seconds of two replicas: 8 stored, 32 accessed, half of it on storage.
    assert {row[1:] for row in rows("replica-uses")} == {(0.8, 3.2, 1.6)}
    assert {row[1:] for row in rows("model-fullness")} == {("a", 0.5), ("b", 0.5)}
    # Of each replica's two choices in a window one is judged; 40 of 140 tokens were lost.
    assert {row[1:] for row in rows("model-choices")} == {(1.0, 40 / 140, of, 0.6) for of in (0.0, 1.0)}
    assert {row[1:] for row in rows("model-choices-tokens")} == {(8.0, 12.0)}
    assert {row[1:] for row in rows("model-choices-tokens", replica=["a"])} == {(4.0, 6.0)}
    assert {row[1:] for row in rows("model-lifetimes") if row[2]} == {(2**-8, 48.0), (2**-7, 72.0)}
    assert {row[1:] for row in rows("model-regret") if row[2]} == {(2**-7, 24.0)}
    assert sum(row[3] for row in rows("health-missing")) == 1
    assert {row[1:] for row in rows("health-timeline")} == {("b/0", "complete"), ("b/0", "degraded")}
    assert [row[1] for row in rows("health-streams")] == ["b"]
    assert rows("health-hashes") == [("m", "b", 0, "d", 2, 0, 1)]
    assert rows("health-hashes", replica=["a"]) == []
    lost = filled("restarts", ANNOTATIONS["restarts"].sql).result_rows
    assert sorted(text for _, text in lost) == [
        "a, b lost 60 blocks",
        "a, b restarted",
        "events of b were lost",
    ]


def test_a_role_chooses_the_replicas_that_have_it(filled: RunSql) -> None:
    def replicas(*roles: str, **chosen: Any) -> list[str]:
        found = filled("model-replicas", PANELS["model-replicas"].sql, role=[*roles], **chosen).result_rows
        return [row[0] for row in found]

    assert replicas("decode") == ["a"]
    assert replicas("not known") == ["b"]
    assert replicas("decode", "not known") == replicas() == ["a", "b"]
    assert replicas("prefill") == replicas("decode", replica=["b"]) == []
    lives = filled("replica-lives", PANELS["replica-lives"].sql, role=["decode"])
    assert [row[lives.column_names.index("role")] for row in lives.result_rows] == ["decode"]
    lost = filled("restarts", ANNOTATIONS["restarts"].sql, role=["decode"]).result_rows
    assert sorted(text for _, text in lost) == ["a lost 30 blocks", "a restarted"]


def test_the_role_of_a_replica_is_the_one_said_last(store: EmbeddedStore, own: Settings) -> None:
    rows = [row for row in hour_of_rows() if isinstance(row, SourceRow) and row.replica == "a"]
    (first,) = rows
    write_rows(
        own,
        [
            msgspec.structs.replace(first, incarnation=incarnation, role=role, version=version)
            for incarnation, role, version in (
                (7, "both", 9),
                (8, "", 10),
                (8, "prefill", 12),
                (8, "decode", 11),
            )
        ],
    )
    run = runner(store, own)
    assert run("roles", "SELECT * FROM replica_roles").result_rows == [("m", "a", "prefill")]


def test_minutes_and_hours_have_what_engines_count(store: EmbeddedStore, own: Settings) -> None:
    scrapes = [row for row in hour_of_rows() if isinstance(row, EngineCountersRow)][:1]
    write_rows(
        own,
        [
            msgspec.structs.replace(
                scrape,
                time=HOUR + timedelta(seconds=at),
                computed_tokens=10 * at,
                transferred_tokens=None if at < 30 else 3 * at,
                reloaded_tokens=0,
                generation_tokens=at,
            )
            for scrape in scrapes
            for at in (20, 30, 40)
        ],
    )
    run = runner(store, own)
    for per in ("minute", "hour"):
        ends = run("ends", f"SELECT first, last FROM engine_counters_by_{per} FINAL").result_rows
        ((first, last),) = ends
        assert [*first.values()][3:] == [200, None, 0, 20]
        assert [*last.values()][3:] == [400, 120, 0, 40]


def test_what_has_no_place_of_its_own_is_in_others(filled: RunSql) -> None:
    causes = (21600, 0, 7200, 3600, 0, 0, 0, 0, 3600, 0)
    for panel, one in (("model-replicas", ("a", *causes)), ("model-fullness", ("a", 0.5))):
        whole = filled(panel, PANELS[panel].sql).result_rows
        narrow = PANELS[panel].sql.replace(f"LIMIT {TOP}", "LIMIT 1")
        named = filled(panel, narrow).result_rows
        shift = len(whole[0]) - len(one)
        assert {row[shift:] for row in named} == {one, ("others", *one[1:])}
        assert len(named) == len(whole)


def test_a_large_fleet_is_shown_from_coarser_tables(store: EmbeddedStore, own: Settings) -> None:
    run = runner(store, own)

    def seconds(hours: float) -> int:
        start = HOUR - timedelta(hours=hours)
        sql = "SELECT seconds FROM finest(from = {from:DateTime}, to = {to:DateTime})"
        chosen: int = run("finest", sql, **{"from": start, "to": HOUR}).result_rows[0][0]
        return chosen

    ranges = (0.1, 0.25, 2, 3, 6, 24, 25)
    assert [seconds(hours) for hours in ranges] == [10, 10, 10, 60, 60, 60, 3600]
    for version, closed, chosen in (
        (1, "NULL", [60, 60, 60, 60, 3600, 3600, 3600]),
        (2, "opened_at", [10, 10, 10, 60, 60, 60, 3600]),
    ):
        run(
            "sources",
            "INSERT INTO sources (model, replica, opened_at, closed_at, trust, version) SELECT 'm',"
            f" toString(number), toDateTime64('2020-01-01 00:00:00', 3, 'UTC') AS opened_at, {closed},"
            f" 'complete', {version} FROM numbers(2000)",
        )
        assert [seconds(hours) for hours in ranges] == chosen


def test_hot_prefixes_are_the_same_in_every_range(filled: RunSql) -> None:
    sql = PANELS["fleet-hot-prefixes"].sql
    for name, (start, end) in RANGES.items():
        assert filled("x", sql, **{"from": start, "to": end}).result_rows == [
            ("m", f"{0xABC:016x}", "", "sql", 32 + 48, 2 * 32, 2 * 16 * 360, 17.8, 3, 40, "complete")
        ], name


@pytest.mark.night
def test_hits_are_those_of_all_scrapes_though_nothing_was_merged_yet(store: EmbeddedStore) -> None:
    settings = migrated(store)
    run = runner(store, settings)
    for per in ("minute", "hour"):
        run("merges", f"SYSTEM STOP MERGES engine_counters_by_{per}")
    for number in range(6):
        at = HOUR + timedelta(seconds=10 * number)
        queries, hits = 1000 * number, 900 * number
        write_rows(
            settings,
            [EngineCountersRow(at, "m", "a", 0, queries, hits, None, None, 100, 16, 0.5, *[None] * 7, 1)],
        )
    sql = "SELECT sum(queried), sum(hit) FROM engine_hits_series(from = {from:DateTime}, to = {to:DateTime})"
    for name, (start, end) in RANGES.items():
        assert run("x", sql, **{"from": start, "to": end}).result_rows == [(5000, 4500)], name


def test_an_engine_that_soon_outgrows_the_session_before_began_again(
    store: EmbeddedStore, own: Settings
) -> None:
    told = (
        (100, 90, 10),
        (300, 60, 240),
        (500, 160, 340),
    )  # queries, hits, computed
    rows = [
        EngineCountersRow(
            HOUR + timedelta(seconds=10 * number), "m", "a", 0, queries, hits, *[None] * 4, 0.5,
            None, None, None, computed, *[None] * 3, 1,
        )
        for number, (queries, hits, computed) in enumerate(told)
    ]  # fmt: skip
    write_rows(own, rows, rolled_up=False)
    sql = (
        "SELECT sum(queried), sum(hit), sum(computed)"
        " FROM engine_hits_series(from = {from:DateTime}, to = {to:DateTime})"
    )
    found = runner(store, own)("x", sql, **{"from": HOUR, "to": HOUR + timedelta(minutes=5)})
    assert found.result_rows == [(500, 160, 340)]


def test_all_replicas_that_were_chosen_are_in_a_picture_of_the_first_ones(
    store: EmbeddedStore, own: Settings
) -> None:
    replicas = [f"replica-{number}" for number in range(TOP + 5)]
    write_rows(own, [row for name in replicas for row in window_rows(0, name)], rolled_up=False)
    run = runner(store, own)
    for panel in ("model-replicas", "model-fullness"):
        found = run(panel, PANELS[panel].sql, replica=replicas[1:]).result_rows
        assert len(found) == TOP + 1, panel
    filled = run("model-replicas", PANELS["model-replicas"].sql, replica=replicas[1:]).result_rows
    assert sum(sum(row[1:]) for row in filled) == 100 * (TOP + 4)


def test_ranges_agree_where_the_figures_are_sums(filled: RunSql) -> None:
    stored = [
        sum(
            row[1]
            for row in filled(
                "x", PANELS["replica-flow"].sql, **{"from": start, "to": end, "step": 3600}
            ).result_rows
        )
        for start, end in RANGES.values()
    ]
    assert stored == pytest.approx([4.0, 4.0, 4.0])


@pytest.mark.parametrize("alert", ALERTS, ids=[alert.id for alert in ALERTS])
def test_an_alert_runs_and_its_runbook_exists(alert: Any, filled: RunSql) -> None:
    assert set(used_parameters(alert.id, alert.sql)) <= {"from", "to"}
    result = filled(alert.id, alert.sql)
    assert result.column_names[-1] == "value"
    assert all(isinstance(row[-1], float) for row in result.result_rows)
    assert all(isinstance(label, str) for row in result.result_rows for label in row[:-1])
    anchors = {line.lstrip("# ") for line in RUNBOOK.read_text().splitlines() if line.startswith("#")}
    assert alert.runbook in anchors


def test_alerts_fire_for_what_happened_and_nothing_else(filled: RunSql) -> None:
    fired = {}
    for alert in ALERTS:
        rows = filled(alert.id, alert.sql).result_rows
        fired[alert.id] = [row[:-1] for row in rows if row[-1] > alert.above]
    assert {name: rows for name, rows in fired.items() if rows} == {
        "stream-degraded": [("m", "b", "0")],
        "routing-loss": [("m",)],
        "hashes-not-comparable": [("m", "b", "0")],
    }


def test_a_replica_that_was_removed_is_not_unreachable(store: EmbeddedStore, own: Settings) -> None:
    rows: list[Row] = [
        msgspec.structs.replace(row, connected=False)
        for replica in "ab"
        for row in window_rows(0, replica)
        if isinstance(row, StreamHealthRow)
    ]
    for source in hour_of_rows():
        if isinstance(source, SourceRow):
            ended = {"closed_at": HOUR, "closed_reason": "removed"} if source.replica == "a" else {}
            rows.append(msgspec.structs.replace(source, **ended))
    write_rows(own, rows, rolled_up=False)
    (alert,) = [each for each in ALERTS if each.id == "stream-unreachable"]
    assert runner(store, own)(alert.id, alert.sql).result_rows == [("m", "b", "0", 1.0)]


def test_ids_are_unique_and_panels_fit_the_grid() -> None:
    for board in BOARDS:
        assert all(PANELS[panel.id] is panel for panel in board.panels)
        assert len({panel.id for panel in board.panels}) == len(board.panels)
        for section in board.sections:
            taken: set[tuple[int, int]] = set()
            for _, area in arranged(section.panels, 0)[0]:
                cells = {(area.x + dx, area.y + dy) for dx in range(area.w) for dy in range(area.h)}
                assert area.x + area.w <= COLUMNS
                assert not taken & cells
                taken |= cells


def test_every_panel_says_what_it_means() -> None:
    for panel in PANELS.values():
        assert len(panel.description) > 40, panel.id
        assert panel.description.endswith("."), panel.id


def test_an_unknown_parameter_is_refused() -> None:
    with pytest.raises(UnknownParameter, match=r"panel p: no viewer provides \{tenant:String\}"):
        used_parameters("p", "SELECT {tenant:String}")


def test_what_a_replica_saved_with_less_cache_counts_with_more(store: EmbeddedStore, own: Settings) -> None:
    rows = [row for replica in "ab" for row in window_rows(0, replica)]
    # With 16 tokens more `a` saves the 20 of its 100 that it evicted; `b` saves 30, but needs 128 more.
    curves = {"a": [0, 0, 0, 0, 20], "b": [0, 0, 0, 0, 0, 0, 0, 30]}
    evicted = {"a": {}, "b": {"evicted_tokens": 30, "cold_tokens": 0}}
    write_rows(
        own,
        [
            msgspec.structs.replace(row, needed_hist=curves[row.replica])
            if isinstance(row, CapacityCurveRow)
            else msgspec.structs.replace(row, **evicted[row.replica])
            if isinstance(row, FillsRow)
            else row
            for row in rows
        ],
        rolled_up=False,
    )
    found = runner(store, own)("model-capacity-gain", PANELS["model-capacity-gain"].sql).result_rows
    assert found == [
        ("m", 16, 0, 20, 10.0, 25.0, True),
        ("m", 32, 0, 20, 10.0, 25.0, False),
        ("m", 64, 0, 20, 10.0, 25.0, False),
        ("m", 128, 0, 50, 25.0, 25.0, False),
    ]


def test_what_either_remedy_saves_is_a_share_of_its_own(store: EmbeddedStore, own: Settings) -> None:
    causes = {
        "peer_tokens": 24,
        "peer_at_receivers_tokens": 4,
        "peer_and_evicted_tokens": 30,
        "evicted_tokens": 10,
        "evicted_elsewhere_tokens": 8,
        "evicted_at_receivers_tokens": 3,
        "cleared_tokens": 5,
        "promoted_tokens": 8,
        "transferred_tokens": 12,
        "generated_tokens": 9,
        "cold_tokens": 18,
        "unknown_tokens": 5,
    }
    write_rows(
        own,
        [
            msgspec.structs.replace(row, filled_tokens=129, **causes) if isinstance(row, FillsRow) else row
            for row in window_rows(0, "a")
        ],
        rolled_up=False,
    )
    found = runner(store, own)("fleet-replicas", PANELS["fleet-replicas"].sql)
    (row,) = found.result_rows
    shares = {name: share for name, share in zip(found.column_names, row, strict=True) if name.endswith("%")}
    del shares["hit rate %"]
    assert shares == {
        "routing %": 20,
        "routing or capacity %": 30,
        "capacity %": 15,
        "warm-up %": 5,
        "receivers only %": 7,
        "cold %": 18,
        "unknown %": 5,
    }
    tokens = dict(zip(found.column_names, row, strict=True))
    assert [tokens[name] for name in ("prefill", "lower tier", "transferred", "generated")] == [100, 8, 12, 9]


def test_a_trend_is_of_series_of_a_stacked_panel_of_the_same_board() -> None:
    trends = [(board, panel.trend) for board in BOARDS for panel in board.panels if panel.trend]
    assert [trend.panel for _, trend in trends] == ["fleet-fills"]
    for board, trend in trends:
        assert PANELS[trend.panel] in board.panels
        assert PANELS[trend.panel].kind == "stacked"
        assert {*trend.series, *trend.without} < set(PANELS[trend.panel].colours)
        assert set(trend.without) == {"lower tier", "transferred", "generated"}


def test_an_engine_that_sent_nothing_is_never_heard(store: EmbeddedStore, own: Settings) -> None:
    silent = [
        msgspec.structs.replace(row, trust="partial", last_seq=-1)
        for row in window_rows(359, "silent")
        if isinstance(row, StreamHealthRow)
    ]
    write_rows(own, [*window_rows(359, "a"), *silent], rolled_up=False)
    rows = runner(store, own)
    assert rows("fleet-sources", PANELS["fleet-sources"].sql).result_rows == [(1, 0, 0, 1)]
    trust = rows("fleet-trust", PANELS["fleet-trust"].sql).result_rows
    assert {row[1:] for row in trust} == {("complete", 1), ("never heard", 1)}
    replicas = rows("fleet-replicas", PANELS["fleet-replicas"].sql).result_rows
    assert {row[1]: row[-1] for row in replicas} == {"a": "complete", "silent": "never heard"}
