"""What a viewer of Grafana sees on every panel: deploy/grafana on the real engine, by Grafana's own rules.

The JSON files are read as Grafana reads them; `tests/support/grafana` has the rules.
"""

from __future__ import annotations

import json
from datetime import timedelta, timezone
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pipeline.dashboards.alerts import ALERTS
from pipeline.dashboards.boards import BOARDS
from pipeline.dashboards.boards.causes import CAUSE_COLOURS
from pipeline.dashboards.boards.fleet import HIT_COLOURS, MEDIUM_COLOURS, OWNER_COLOURS, TRUST_COLOURS
from pipeline.dashboards.panel import Panel
from pipeline.local.clickhouse.embedded import EmbeddedStore
from schemas.rows import FlowRow
from schemas.settings import Settings
from tests.support.grafana import panels, rules, sharing, variables
from tests.support.grafana.figures import written
from tests.support.grafana.frames import Frame, frames
from tests.support.inputs.board_rows import HOUR, RunSql, runner, window_rows, write_rows
from tests.support.suite.night import by_day, first_by_day

GRAFANA = Path("deploy/grafana")
FILES = {path.stem: json.loads(path.read_text()) for path in sorted((GRAFANA / "dashboards").glob("*.json"))}
NO_PICTURE = ("row", "text")
PANELS = {
    f"{name}: {panel['title']}": (board, panel)
    for name, board in FILES.items()
    for panel in board["panels"]
    if panel["type"] not in NO_PICTURE
}
OF_EACH_KIND = {panel["type"]: name for name, (_, panel) in PANELS.items()}.values()
RULES = json.loads((GRAFANA / "provisioning/alerting/kvlens.json").read_text())["groups"][0]["rules"]
OVER = variables.Range(HOUR, HOUR + timedelta(minutes=59, seconds=59), 60)
ROOT = "https://monitoring.example/grafana/"

CAUSES = {
    "routing": 12.0,
    "routing or capacity": 0.0,
    "capacity": 4.0,
    "warm-up": 2.0,
    "receivers only": 0.0,
    "lower tier": 0.0,
    "transferred": 0.0,
    "generated": 0.0,
    "cold": 2.0,
    "unknown": 0.0,
}
TRUST = {"complete": {1, 2}, "degraded": {None, 1}}
SERIES: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "fleet: GPUs busy with avoidable prefill": (
        {
            "capacity, measured": 0.25,
            "receivers only, measured": 0.0,
            "routing or capacity, measured": 0.0,
            "routing, measured": 0.75,
            "warm-up, measured": 0.125,
        },
        {
            f"{cause}, measured": CAUSE_COLOURS[cause]
            for cause in ("routing", "routing or capacity", "capacity", "warm-up", "receivers only")
        },
    ),
    "fleet: Fills by avoidable cause": (CAUSES, CAUSE_COLOURS),
    "fleet: Cached tokens by medium": ({"cpu": 320.0, "gpu": 1280.0}, MEDIUM_COLOURS),
    "fleet: Blocks by number of replicas that hold them": (
        {"1": 20.0, "2": 20.0, "3": 0.0, "4 to 7": 0.0, "8 and more": 0.0},
        OWNER_COLOURS,
    ),
    "fleet: Evicted tokens by model": ({"m": 32.0}, {}),
    "fleet: Completeness of the data": (TRUST, TRUST_COLOURS),
    "health: Batches missing, recovered, lost": (
        {"missing": 24, "replayed": 12, "lost": {0, 1}, "repeated": 0},
        {"missing": "#d9a514", "replayed": "#2f9e6e", "lost": "#d1495b", "repeated": "#9aa5b1"},
    ),
    "health: Undecodable events": ({"m": 0.0}, {}),
    "health: Events": ({"m": 6.0}, {}),
    "health: Ingest latency": ({"largest": 0.25, "median": 0.25}, {}),
    "model: Fills by avoidable cause": (CAUSES, CAUSE_COLOURS),
    "model: GPU cache in use by replica": ({"a": 0.5, "b": 0.5}, {}),
    "replica: Cached tokens by medium": ({"cpu": 320.0, "gpu": 1280.0}, MEDIUM_COLOURS),
    "replica: GPU blocks against capacity": (
        {"in use": 100.0, "distinct": 80.0, "capacity": 200.0, "beyond capacity": None},
        {"beyond capacity": "#d1495b"},
    ),
    "replica: Stored, evicted, cleared": (
        {"stored": 4.0, "evicted": 2.0, "cleared": {0.0, 1.0}},
        {
            "stored": "#6c7fa8",
            "evicted": CAUSE_COLOURS["capacity"],
            "cleared": CAUSE_COLOURS["warm-up"],
        },
    ),
    "replica: Blocks in use by group and size": (
        {"cpu, group 0, 16 tokens a block": 20.0, "gpu, group 0, 16 tokens a block": 100.0},
        {},
    ),
    "replica: Tiers in bytes, of their capacity": ({"a cpu": 0.375, "b cpu": 0.375}, {}),
    "replica: Objects stored and used": ({"stored": 0.8, "accessed": 3.2, "hits": 1.6}, {}),
}
"""{panel: {name of a series: its value, or values}, {name: colour}}."""
STACKED = {
    "fleet: GPUs busy with avoidable prefill",
    "fleet: Fills by avoidable cause",
    "fleet: Cached tokens by medium",
    "fleet: Blocks by number of replicas that hold them",
    "fleet: Completeness of the data",
    "model: Fills by avoidable cause",
    "replica: Cached tokens by medium",
}
HEAT = {
    "model: Time from eviction to re-use": {"7.81 ms": 24},
    "model: Lifetime of evicted blocks": {"3.91 ms": 48, "7.81 ms": 72},
}
STATS = {
    "fleet: GPU cache in use": {"full": "50%"},
    "fleet: Evicted": {"evicted": "32 tokens/s"},
    "health: Event streams": {"complete": "1", "partial": "0", "degraded": "1", "never heard": "0"},
    "health: Data freshness": {"age": "0 s"},
}
BARS: dict[str, tuple[str, dict[str, dict[str, Any]], dict[str, str]]] = {
    "fleet: Hit rate: actual and possible": (
        "none",
        {
            "m": {
                "actual": 0.9,
                "more cache": pytest.approx(0.93, abs=1e-3),
                "and better routing": pytest.approx(0.99, abs=1e-3),
            }
        },
        HIT_COLOURS,
    ),
    "model: Fills by replica and cause": (
        "normal",
        {name: {cause: rate * 1800 for cause, rate in CAUSES.items()} for name in ("a", "b")},
        CAUSE_COLOURS,
    ),
}
TABLES = {
    "fleet: Replicas": [
        {"replica": name, "prefill": "36000", "avoidable": "32400", "routing %": "60", "trust": trust}
        for name, trust in (("a", "complete"), ("b", "degraded"))
    ],
    "fleet: Hot prefixes": [
        {"first block": "0000000000000abc", "LoRA": "sql", "duplicated": "80", "refilled": "11520"}
    ],
    "fleet: What prefill cost, and what caches saved": [
        {
            "model": "m",
            "tenant": "default",
            "GPU-hours lost": "1.12",
            "GPU-hours saved by hits": "11.22",
            "cost of the lost": "4.05",
            "cost saved": "40.39",
            "currency": "EUR",
            "rate": "measured",
            "% without a cost": "0",
            "trust": "degraded",
        }
    ],
    "health: Streams with problems": [
        {"model": "m", "replica": "b", "rank": "0", "trust": "degraded", "lost": "1", "restarts": "1"}
    ],
    "health: Incompatible block hashes": [
        {"model": "m", "replica": "b", "rank": "0", "hash domain": "d", "shards without a match": "2"}
    ],
    "model: What more cache would save": [
        {"more tokens a replica": "16", "in bytes": "0", "tokens saved": "14400", "% of the prefill": "20"}
    ],
    "replica: What filled the cache, and what the engine counted": [
        {"replica": name, "filled": "36000", "computed": "35900", "generated": "3590", "left over": "-3490"}
        for name in ("a", "b")
    ],
    "replica: Engine sessions": [
        {"replica": name, "closed": "", "engine": "vllm", "last batch": "360"} for name in ("a", "b")
    ],
}  # fmt: skip
LANES = {"health: Streams that were not complete": ["b/0"]}


def asked(run: RunSql, board: dict[str, Any], query: dict[str, Any], **chosen: Any) -> list[Frame]:
    """Return the frames of a query of a board."""
    return framed(run, query, variables.sent(query["rawSql"], board["templating"]["list"], chosen, OVER))


def framed(run: RunSql, query: dict[str, Any], sql: str) -> list[Frame]:
    result = run("grafana", sql)
    types = [kind.name for kind in result.column_types]
    return frames(result.column_names, types, result.result_rows, form=query["format"], ref_id="A")


def of(name: str, run: RunSql, **chosen: Any) -> tuple[dict[str, Any], list[Frame]]:
    """Return a panel, and what its transformations make of what its only query returns."""
    board, panel = PANELS[name]
    found = asked(run, board, sharing.asking(board, panel), **chosen)
    return panel, sharing.transformed(found, panel.get("transformations", ()))


def picture(panel: Panel, run: RunSql) -> Any:
    """Return what the rows of a panel mean, as `panel.Kind` has it, in the words of `seen`."""
    result = run(panel.id, panel.sql)
    names, rows = result.column_names, result.result_rows
    match panel.kind:
        case "stat":
            return list(names)
        case "lanes":
            shares = {(name, at): value for at, _, name, value in rows if value is not None}
            return {key: (written(value, "percentunit"), None) for key, value in shares.items()}
        case "flow":
            found = {(whole, part): tokens for whole, part, tokens in rows}
            whole = {each for each, _ in found}
            return {(each, part): found.get((each, part), 0) for each in whole for part in panel.colours}
        case "table" | "curve" | "answer" | "findings":
            return [list(names)] * len(rows)
        case "bar":
            return {
                (row[0], name): value for row in rows for name, value in zip(names[1:], row[1:], strict=True)
            }
        case "heatmap":
            used = {bucket for _, bucket, value in rows if value > 0}
            buckets = sorted({bucket for _, bucket, _ in rows if min(used) <= bucket <= max(used)})
            step = timedelta(seconds=OVER.interval)
            places = {bucket: place for place, bucket in enumerate(buckets)}
            return {(places[bucket], at + step): value for at, bucket, value in rows if bucket in places}
        case "state_timeline":
            return {(name, at): (state, panel.colours[state]) for at, name, state in rows}
        case _ if panel.named_by:
            assert names[1] == panel.named_by
            return {(name, at): value for at, name, value in rows if value is not None}
        case _:
            return {
                (name, row[0]): value
                for row in rows
                for name, value in zip(names[1:], row[1:], strict=True)
                if value is not None
            }


def seen(panel: dict[str, Any], found: list[Frame]) -> Any:
    """Return what Grafana shows: what there is, and where a value stands, the value itself."""
    match panel["type"]:
        case "stat":
            return list(panels.stats(panel, found))
        case "table":
            return [list(row) for row in panels.cells(panel, found)]
        case "barchart":
            return {(bar.group, bar.name): bar.value for bar in panels.bars(panel, found)}
        case "heatmap":
            rows = enumerate(panels.heat_rows(panel, found))
            return {(place, at): value for place, row in rows for at, value in row.cells.items()}
        case "state-timeline":
            lanes = panels.lanes(panel, found)
            return {(lane.name, at): state for lane in lanes for at, state in lane.states.items()}
        case _:
            drawn = panels.series(panel, found)
            assert len({one.name for one in drawn}) == len(drawn)
            return {
                (one.name, at): value
                for one in drawn
                for at, value in one.points.items()
                if value is not None
            }


@pytest.mark.parametrize("name", by_day(PANELS, OF_EACH_KIND))
def test_a_viewer_sees_what_the_rows_of_a_panel_mean(name: str, filled: RunSql) -> None:
    (panel,) = {
        panel.id: panel for board in BOARDS for panel in board.panels if f"{board.id}: {panel.title}" == name
    }.values()
    expected = picture(panel, filled)
    assert expected
    assert seen(*of(name, filled)) == expected


def test_all_panels_have_a_place() -> None:
    titles = [f"{board.id}: {panel.title}" for board in BOARDS for panel in board.panels]
    assert sorted(PANELS) == sorted(titles)
    assert {*SERIES, *HEAT, *STATS, *BARS, *TABLES, *LANES} <= set(titles)


@pytest.mark.parametrize("name", first_by_day(SERIES, 3))
def test_series_have_the_names_colours_and_values_of_the_rows(name: str, filled: RunSql) -> None:
    values, colours = SERIES[name]
    found = panels.series(*of(name, filled))
    assert [one.name for one in found] == list(values)
    for one in found:
        expected = values[one.name]
        assert set(one.points.values()) == (expected if isinstance(expected, set) else {expected}), one.name
        assert one.colour == colours.get(one.name), one.name
        assert one.stacked == (name in STACKED)
        assert len(one.points) == 60


@pytest.mark.parametrize("name", HEAT)
def test_a_heatmap_has_a_row_for_each_bucket_from_the_lowest_used_to_the_highest(
    name: str, filled: RunSql
) -> None:
    rows = panels.heat_rows(*of(name, filled))
    assert {row.label: set(row.cells.values()) for row in rows} == {
        label: {value} for label, value in HEAT[name].items()
    }
    # A cell ends at its time: the first one holds the first minute.
    assert min(rows[0].cells).replace(tzinfo=None) == (HOUR + timedelta(minutes=1)).replace(tzinfo=None)
    assert PANELS[name][1]["options"]["rowsFrame"] == {"layout": "le"}


@pytest.mark.parametrize(
    ("days", "interval", "width"), [(0, 15, 20), (0, 60, 60), (0.5, 90, 120), (3, 60, 3600), (3, 4000, 7200)]
)
def test_a_cell_of_a_heatmap_is_as_long_as_the_windows_it_sums_up(
    days: float, interval: int, width: int, filled: RunSql
) -> None:
    over = variables.Range(HOUR - timedelta(days=days), OVER.end, interval)
    name = "model: Lifetime of evicted blocks"
    board, panel = PANELS[name]
    (query,) = panel["targets"]
    sent = variables.sent(query["rawSql"], board["templating"]["list"], {}, over)
    row = panels.heat_rows(panel, framed(filled, query, sent))[0]
    first = HOUR.timestamp() // width * width + width
    assert min(row.cells).replace(tzinfo=timezone.utc).timestamp() == first
    assert sum(row.cells.values()) == 48 * 60


def test_rows_of_a_heatmap_ascend_though_their_texts_do_not(store: EmbeddedStore, own: Settings) -> None:
    counts = [0, 0, 0, *range(4, 10), 0, *range(11, 19), 0, 0]
    write_rows(
        own,
        [
            msgspec.structs.replace(row, lifetime_hist=counts) if isinstance(row, FlowRow) else row
            for row in window_rows(0, "a")
        ],
        rolled_up=False,
    )
    rows = panels.heat_rows(*of("model: Lifetime of evicted blocks", runner(store, own)))
    assert [row.label for row in rows][-8:] == [
        "1 s",
        "2 s",
        "4 s",
        "8 s",
        "16 s",
        "32 s",
        "1.07 min",
        "2.13 min",
    ]
    assert [list(row.cells.values()) for row in rows] == [[count] for count in counts[3:-2]]


@pytest.mark.parametrize("name", LANES)
def test_a_timeline_has_a_lane_for_each_stream(name: str, filled: RunSql) -> None:
    (lane,) = panels.lanes(*of(name, filled))
    assert lane.name == "b/0"
    states = [state for _, state in sorted(lane.states.items())]
    good, bad = ("complete", TRUST_COLOURS["complete"]), ("degraded", TRUST_COLOURS["degraded"])
    assert states == [good] * 30 + [bad] * 30
    # States by thresholds would lose the texts.
    defaults = PANELS[name][1]["fieldConfig"]["defaults"]
    assert defaults["color"]["mode"] != "thresholds"


def test_lanes_of_streams_that_come_and_go_have_gaps(store: EmbeddedStore, own: Settings) -> None:
    rows = [row for number in (181, 182, 190) for row in window_rows(number, "b")]
    rows += [msgspec.structs.replace(row, replica="c") for row in window_rows(240, "b")]
    write_rows(own, rows, rolled_up=False)
    one, other = panels.lanes(*of("health: Streams that were not complete", runner(store, own)))
    assert (one.name, other.name) == ("b/0", "c/0")
    assert [len(one.states), len(other.states)] == [2, 1]
    assert not set(one.states) & set(other.states)


@pytest.mark.parametrize("name", STATS)
def test_a_figure_has_its_text(name: str, filled: RunSql) -> None:
    assert panels.stats(*of(name, filled)) == STATS[name]


@pytest.mark.parametrize("name", BARS)
def test_bars_stand_side_by_side_or_make_up_a_whole(name: str, filled: RunSql) -> None:
    stacking, groups, colours = BARS[name]
    panel, found = of(name, filled)
    assert panel["options"]["stacking"] == stacking
    bars = panels.bars(panel, found)
    assert [(bar.group, bar.name) for bar in bars] == [
        (group, one) for group in groups for one in groups[group]
    ]
    for bar in bars:
        assert bar.value == groups[bar.group][bar.name]
        assert bar.colour == colours[bar.name]


@pytest.mark.parametrize("name", first_by_day(TABLES, 2))
def test_a_table_has_the_cells_of_the_rows(name: str, filled: RunSql) -> None:
    found = panels.cells(*of(name, filled))
    expected = TABLES[name]
    assert [
        {column: row[column] for column in wanted} for row, wanted in zip(found, expected, strict=True)
    ] == expected


@pytest.mark.parametrize("name", first_by_day(TABLES))
def test_names_in_a_table_lead_to_their_boards(name: str, filled: RunSql) -> None:
    panel, found = of(name, filled)
    named = {field.name: set(field.values) for field in found[0].fields}
    kept = "${__url_time_range}&${datasource:queryparam}"
    chosen = {"model": "&var-model=%s", "replica": "&${model:queryparam}&var-replica=%s"}
    led = {
        (value, f"/d/kvlens-{column}?{kept}{chosen[column] % value}")
        for column in chosen
        for value in named.get(column, ())
    }
    led |= {(board, f"/d/kvlens-{board}?{kept}&${{model:queryparam}}") for board in named.get("shown on", ())}
    assert panels.links(panel, found) == led
    assert named.get("shown on", set()) <= FILES.keys()
    for column in ("model", "replica"):
        listed = FILES[column]["templating"]["list"]
        assert column in [variable["name"] for variable in listed]
        assert FILES[column]["uid"] == f"kvlens-{column}"


@pytest.mark.parametrize("name", by_day(PANELS, OF_EACH_KIND))
def test_nothing_is_drawn_of_empty_tables(name: str, empty: RunSql) -> None:
    panel, found = of(name, empty)
    assert panel["type"] == "stat" or not found or all(not field.values for field in found[0].fields)


def test_what_was_chosen_is_all_there_is(filled: RunSql) -> None:
    def names(panel: str, **chosen: Any) -> list[str]:
        return [one.name for one in panels.series(*of(panel, filled, **chosen))]

    fullness = "model: GPU cache in use by replica"
    assert names(fullness) == ["a", "b"]
    assert names(fullness, replica=["b"]) == ["b"]
    assert names(fullness, replica=["a", "b"], model=["m"]) == ["a", "b"]
    assert names(fullness, model=["o'neil"]) == []


def test_all_of_five_thousand_replicas_are_chosen_in_a_few_characters() -> None:
    over = OVER._replace(known={"replica": [f"inference-{number:05}" for number in range(5000)]})
    for board, panel in PANELS.values():
        query = sharing.asking(board, panel)
        every = variables.sent(query["rawSql"], board["templating"]["list"], {}, over)
        # Ten digits and a function for each end of the range.
        assert len(every) <= len(query["rawSql"]) + 20 * query["rawSql"].count("$__")


def test_what_several_panels_show_is_asked_once() -> None:
    for board in {name: board for name, board in FILES.items() if name != "runbook"}.values():
        queries = [
            target["rawSql"]
            for panel in board["panels"]
            for target in panel.get("targets", ())
            if "rawSql" in target
        ]
        assert len(set(queries)) == len(queries)
        assert sum("FROM briefing(" in sql for sql in queries) == (board["uid"] == "kvlens-fleet")


def test_the_choices_are_the_models_and_their_replicas(filled: RunSql) -> None:
    def choices(name: str, **chosen: Any) -> list[str]:
        listed = FILES["replica"]["templating"]["list"]
        (variable,) = [each for each in listed if each["name"] == name]
        (frame,) = framed(filled, {"format": 1}, variables.sent(variable["query"], listed, chosen, OVER))
        # A result without rows comes without columns here.
        return [value for field in frame.fields for value in field.values]

    assert choices("model") == ["m"]
    assert choices("replica") == choices("replica", model=["m"]) == ["a", "b"]
    assert choices("replica", model=["other"]) == []
    assert choices("role") == ["decode", "not known"]


def test_marks_have_a_time_and_a_text(filled: RunSql) -> None:
    marked = [name for name, board in FILES.items() if board["annotations"]["list"]]
    assert marked == ["fleet", "model", "replica"]
    for name in marked:
        (annotation,) = FILES[name]["annotations"]["list"]
        (frame,) = asked(filled, FILES[name], annotation["target"])
        assert [(field.name, field.type) for field in frame.fields] == [("time", "time"), ("text", "string")]
        assert sorted(frame.fields[1].values) == [
            "a, b lost 60 blocks",
            "a, b restarted",
            "events of b were lost",
        ]


def ruled(rule: dict[str, Any], run: RunSql) -> list[rules.Instance]:
    query = rule["data"][0]["model"]
    return rules.instances(rule, framed(run, query, variables.sent(query["rawSql"], [], {}, OVER)), ROOT)


def test_an_alert_says_what_it_is_about(filled: RunSql) -> None:
    said = [
        instance.annotations["summary"]
        for rule in RULES
        for instance in ruled(rule, filled)
        if instance.fires
    ]
    assert said == [
        "model m, replica b, rank 0: Batches or events of a stream are lost for good",
        "model m: Routing sends requests away from their cache",
        "model m, replica b, rank 0: Hashes of a replica are not comparable",
    ]
    shares = next(rule for rule in RULES if rule["uid"] == "kvlens-routing-loss")
    (instance,) = ruled(shares, filled)
    assert instance.annotations["description"].endswith(" Now 0.6, fires above 0.25.")


@pytest.mark.parametrize("index", range(len(ALERTS)), ids=[alert.id for alert in ALERTS])
def test_an_alert_leads_to_its_panel_and_to_its_page_of_the_runbook(index: int, filled: RunSql) -> None:
    alert, rule = ALERTS[index], RULES[index]
    by_uid = {board["uid"]: board for board in FILES.values()}
    numbered = {panel["id"]: panel for panel in by_uid[rule["dashboardUid"]]["panels"]}
    titles = {panel.id: panel.title for board in BOARDS for panel in board.panels}
    assert numbered[rule["panelId"]]["title"] == titles[alert.panel]
    assert rule["annotations"]["__dashboardUid__"] == rule["dashboardUid"]
    assert rule["annotations"]["__panelId__"] == str(rule["panelId"])
    for instance in ruled(rule, filled):
        assert set(instance.labels) == set(alert.about)
        address, _, page = instance.annotations["runbook_url"].partition("?viewPanel=")
        assert address == "https://monitoring.example/grafana/d/kvlens-runbook"
        (shown,) = [panel for panel in by_uid["kvlens-runbook"]["panels"] if panel["id"] == int(page)]
        assert shown["title"] == alert.title
