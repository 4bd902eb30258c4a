"""docs/tables.md: every ClickHouse table with its columns, key, engine and lifetime, and every view."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from typing import get_args

import schemas.fleet_rows
import schemas.rows
import schemas.setting_rows
from pipeline.clickhouse.sql_files import migrations, view_texts
from pipeline.clickhouse.views import INNER
from pipeline.generated.pages.markdown import code, page, table
from pipeline.generated.source_docs import attribute_docs, one_line
from pipeline.generated.sql_tables import Table, View, parse

INTRODUCTION = """\
`kvlens migrate` creates the tables in `clickhouse.database`, with the descriptions of this page as comments.

**Rows are upserts.** Each table is a `ReplacingMergeTree(version)`: of several rows with one key the highest
`version` counts, so **read with `FINAL`**, and bound the time on the first expression of the sort key. The
[views](#views) do both:"""

READING = """\
```sql
SELECT window, replica, sum(blocks) AS blocks, max(trust) AS trust
FROM kvlens.occupancy(from = '2026-01-01T12:00:00Z', to = '2026-01-01T12:10:00Z')
WHERE medium = 'gpu'
GROUP BY window, replica
ORDER BY window, replica
```"""

TIMES = """\
**Times.** Columns are in UTC. `from` and `to` of a view are one of these:

- seconds since the epoch: `toUnixTimestamp(now()) - 600`;
- text with a zone, as above;
- a clock of the session: `now()`, `toDateTime(1767268800)`, Grafana's `$__fromTime`, or what a client sends
  without a zone; give the present time of another zone with that. The hour that a change of daylight saving
  shows twice is refused, and so is what is the present time in UTC but not in the session.

A `DateTime` of *another* zone than the session's loses it on the way to a view: give
`toUnixTimestamp(now('UTC'))`, from a client `toUnixTimestamp({from:DateTime('UTC')})`.

A tool that cannot pass arguments can read `occupancy_now`, `stream_health_now`, `hit_potential_1h` and the
tables. Views work under any profile of their reader."""

TRUST = """\
**Trust.** Every row shows how far you can rely on it: `complete` (every batch since the engine's first
one, or since a clear, was applied), `partial` (kvlens started after the engine, so older blocks are
unknown) or `degraded` (batches or events are missing). Of an aggregate it is `max(trust)`.

**A source** is one event stream: a replica and a data-parallel rank. A **window** is ten seconds of engine
time. A silent source still gets occupancy rows until it is closed, so sums over a fleet have no holes.

**Per minute and per hour.** `…_10s`, kept 7 days, is recomputed to `…_1m`, kept 60 days, and `…_1h`, kept 2
years, with the same columns, `windows` and those named there. Flows are sums, and gauges those of the last
window; trust, connection, lag and drift are the worst. `version` is when it was computed (µs since 1970).

**Unless a table says otherwise**, one with a `window` or `time` is sorted by `toStartOfHour` of it and then
its key, partitioned by its day and kept 7 days; others are sorted by their key and kept for ever. A column is
a `UInt64`; types leave `LowCardinality`, `Nullable` (the meaning says NULL) and `'UTC'` out. Besides the
columns in its section a table has those of its key and `version`: of settings, when the worker that wrote
them started (ms since 1970). Columns in one row count the same in blocks, tokens or bytes."""

PUBLIC = frozenset({
    "sources", "occupancy_now", "stream_health_now", "hit_potential_1h", "occupancy_series", "flow_series",
    "fills_series", "hit_potential_series", "hot_prefixes_series", "prefill_costs",
})  # fmt: skip
"""The tables and views that answer most questions."""
BEGINNING = """\
**Begin with** [`sources`](#sources) and these [views](#views), which answer most questions: {names}. Views
that end in `_series` read rows of ten seconds, minutes or hours, whichever fits the range."""
INTERNAL = (
    "rollups_due", "engine_counters_by_minute", "engine_counters_by_hour", "prefill_counters_by_hour"
)  # fmt: skip
"""Tables that only kvlens reads."""
OF_KVLENS = """\
{names} hold what minutes, hours and costs are computed by. Nothing is promised to other readers."""
PARTS = frozenset({
    "coinciding_restarts", "finest", "latest_streams", "new_prefixes", "observed", "prefill_epochs",
    "prefill_hours", "prefill_replicas", "replica_facts",
})  # fmt: skip
OF_PARTS = "Parts of the others, or written by ClickHouse itself."
"""The description of views that no reader needs to name."""
COMMON = 3
"""A column that at least this many tables have, with one type and meaning, is explained once."""
ARGUMENTS = """\
Both ends of the time range are included. `from` and `to` are `DateTime('UTC')`, `step` and `seconds`
`UInt32`, `models` is `Array(String)`. With `step`, `time` is the start of the point of `width` seconds that a
window belongs to. The [files of views](../schemas/clickhouse/views/) say more; formulas are in
[figures](figures.md)."""

BY_HOUR = re.compile(r"toStartOfHour\(\w+\), ")
"""Leads sort keys so that a time range reads few granules; says nothing about which row it is."""
SENTENCE = re.compile(r"(?<=\.) (?=[A-Z`])")
"""Between the sentences of a description, of which the page has the first."""
SAME_IN = re.compile(r"\w+ in `(\w+)`\.")
"""Of a column that says in tokens or bytes what another one counts: they share a row."""
LEFT_OUT = re.compile(r"(?:LowCardinality|Nullable)\((\w+(?:\(3\))?)\)")
INTERVAL = re.compile(r"INTERVAL (\d+) (DAY|MONTH|YEAR)", re.I)
ROLLUP = re.compile(r"(.+)_(1m|1h)")
COUNTERS = re.compile(r"(engine|prefill)_counters_by_(minute|hour)")
COUNTED = {
    "engine": {
        "window": "Start of the minute or hour.",
        "first": "The first scrape of the period that has both: its time, tokens looked up, tokens found.",
        "last": "The last one.",
    },
    "prefill": {
        "window": "Start of the hour.",
        "first": "The first scrape of the hour that has both: its time, tokens computed, seconds of prefill.",
        "last": "The last one.",
    },
}
DUE = {
    "worker": "A process of a worker; another one has another name.",
    "family": "What the names of the tables begin with.",
    "minute": "Start of a minute in which it wrote ten-second rows.",
    "noted": "Number of its last note, made before it wrote them.",
    "noted_at": "When that was, by the server's clock.",
    "done": "Notes up to this number are done: the minute and its hour were recomputed since.",
}
HEAD = ("Column", "Type", "Meaning")
Column = tuple[str, str, str]
"""Name, type, meaning."""
ROLLUP_PERIODS = {"1m": "minute", "1h": "hour"}
ENGINE = "ReplacingMergeTree(version)"
WORKERS_START = "When the worker that wrote it started (ms since the epoch)."
"""What the introduction says of the version of settings."""


def row_types() -> dict[str, type]:
    """Return {table: row struct} of the tables that the pipeline writes."""
    return {row.TABLE: row for row in get_args(schemas.rows.Row)}


def tables_and_views() -> tuple[dict[str, Table], dict[str, View]]:
    """Return the tables that the files define, and the views that readers ask, by name."""
    of_tables = [statement for each in migrations() for statement in each.statements]
    tables, views = parse([*of_tables, *view_texts()])
    return tables, {
        name: replace(view, table=_read(view, views))
        for name, view in views.items()
        if not name.endswith(INNER)
    }


def _read(view: View, views: dict[str, View]) -> str:
    """Return the first of what a view reads that readers may ask as well."""
    while view.table.endswith(INNER):
        view = views[view.table]
    return view.table


def tables_page() -> bytes:
    """Return the page."""
    tables, views = tables_and_views()
    shared = _shared(tables)
    names = ", ".join(code(name) for name in sorted(PUBLIC) if name in views)
    blocks = [
        INTRODUCTION,
        READING,
        TIMES,
        TRUST,
        BEGINNING.format(names=names),
        "## Columns of many tables",
        table(
            HEAD,
            ((code(column), _short(kind), meaning) for column, kind, meaning in sorted(shared)),
        ),
    ]
    for name, definition in _documented(tables).items():
        blocks += [f"## {name}", _about(definition)]
        blocks += _columns(definition, shared)
        blocks += _rollups(definition, tables)
    blocks += ["## Views", ARGUMENTS, _views(views)]
    blocks += ["## Tables of kvlens itself", OF_KVLENS.format(names=", ".join(map(code, INTERNAL)))]
    return page("Tables", "`schemas/{rows,fleet_rows,setting_rows}.py` and `schemas/clickhouse/`", *blocks)


def _described(columns: dict[str, str], name: str) -> list[Column]:
    meanings = column_meanings(name)
    return [(column, kind, meanings.get(column, "")) for column, kind in columns.items()]


def _shared(tables: dict[str, Table]) -> frozenset[Column]:
    """Return the columns that at least `COMMON` tables, except rollups, have with one type and meaning."""
    found = Counter(
        column
        for name, definition in tables.items()
        if not ROLLUP.fullmatch(name)
        for column in _described(definition.columns, name)
    )
    windows = next(iter(_described({"windows": "UInt32"}, "occupancy_1m")))
    commonest: dict[str, Column] = {}
    for column, count in found.most_common():
        if count >= COMMON:
            commonest.setdefault(column[0], column)
    return frozenset(commonest.values()) | {windows}


def _documented(tables: dict[str, Table]) -> dict[str, Table]:
    """Return the tables that have a section."""
    return {
        name: found for name, found in tables.items() if not ROLLUP.fullmatch(name) and name not in INTERNAL
    }


def _rollups(definition: Table, tables: dict[str, Table]) -> list[str]:
    """Return what is said of the tables computed from `definition`, and the columns that only they have."""
    rollups = [
        found for name, found in tables.items() if name != definition.name and _base(name) == definition.name
    ]
    if not rollups:
        return ["No minutes and hours."] if definition.name.endswith("_10s") else []
    names = " and ".join(code(rollup.name) for rollup in rollups)
    said = [f"{names}. {rollups[0].comment}"] if rollups[0].comment else []
    largest = [
        code(column)
        for column in rollups[0].columns
        if column not in definition.columns and column != "windows"
    ]
    if largest:
        said.append(f"{names} also have {', '.join(largest)}: the largest of a window in the period.")
    return said


def _base(name: str) -> str:
    found = ROLLUP.fullmatch(name)
    return f"{found[1]}_10s" if found else name


def summary_of(definition: Table) -> str:
    """Return what a row of a table is."""
    found = ROLLUP.fullmatch(definition.name)
    return f"`{found[1]}_10s` per {ROLLUP_PERIODS[found[2]]}." if found else _summary(definition)


def _summary(definition: Table) -> str:
    row = row_types().get(definition.name)
    return one_line(row.__doc__).split("\n\n")[0] if row else definition.comment


def _sorted_by(definition: Table) -> str:
    return definition.key.removeprefix("(").removesuffix(")")


def _key(definition: Table) -> list[str]:
    return BY_HOUR.sub("", _sorted_by(definition)).split(", ")


def _about(definition: Table) -> str:
    key = ", ".join(_key(definition))
    time = next((column for column in ("window", "time") if column in definition.columns), "")
    usual = (f"toStartOfHour({time}), {key}", f"toYYYYMMDD({time})") if time else (key, "")
    assert (_sorted_by(definition), definition.partition, definition.engine) == (*usual, ENGINE)
    kept = _lifetime(definition.ttl)
    unusual = "" if kept == ("7 days" if time else "for ever") else f"; kept: {kept}"
    return f"{_summary(definition)} Key: {code(key)}{unusual}."


def _lifetime(ttl: str) -> str:
    if not ttl:
        return "for ever"
    found = INTERVAL.search(ttl)
    return f"{found[1]} {found[2].lower()}s" if found else code(ttl)


def _columns(definition: Table, shared: frozenset[Column]) -> list[str]:
    """Explain the columns of one table that are its own, and name those explained above."""
    described = _described(definition.columns, definition.name)
    said = {"version", *_key(definition)}
    named = [code(column[0]) for column in described if column in shared and column[0] not in said]
    own: list[tuple[list[str], str, str]] = []
    for column, kind, meaning in described:
        if (column, kind, meaning) in shared or meaning == WORKERS_START:
            continue
        of = SAME_IN.fullmatch(meaning)
        if of and own and own[-1][0][0] == of[1]:
            own[-1][0].append(column)
        else:
            own.append(([column], kind, meaning))
    rows = ((", ".join(map(code, columns)), _shown(kind), meaning) for columns, kind, meaning in own)
    return [*([table(HEAD, rows)] if own else []), *([f"Also {', '.join(named)}."] if named else [])]


def _shown(kind: str) -> str:
    short = _short(kind)
    return "" if short == "`UInt64`" else "`Enum8`" if kind.startswith("Enum8") else short


def _short(kind: str) -> str:
    return code(LEFT_OUT.sub(r"\1", kind.replace(", 'UTC'", "").replace("('UTC')", "")))


def column_meanings(name: str) -> dict[str, str]:
    """Return {column: meaning} of a table; a rollup says what its ten-second table says, and more."""
    if counters := COUNTERS.fullmatch(name):
        return {**column_meanings("engine_counters"), **COUNTED[counters[1]]}
    if name == "rollups_due":
        return DUE
    row = row_types().get(_base(name))
    own = attribute_docs(schemas.rows, schemas.fleet_rows, schemas.setting_rows)[row.__name__] if row else {}
    if not ROLLUP.fullmatch(name):
        return own
    largest = {f"{column}_max": f"Largest {code(column)} of a window in the period." for column in own}
    return {**own, **largest, "windows": "Ten-second windows behind the row."}


def _signature(view: View) -> str:
    return f"{view.name}({', '.join(view.parameters)})" if view.parameters else view.name


def _views(views: dict[str, View]) -> str:
    """Return a table of the views; those with the same description share a row."""
    alike: dict[str, list[View]] = {}
    for view in views.values():
        alike.setdefault(_gives(view), []).append(view)
    rows = ((", ".join(code(_signature(view)) for view in group), gives) for gives, group in alike.items())
    return table(("View", "Gives"), rows)


def _gives(view: View) -> str:
    if view.name in PARTS or (not view.parameters and view.name.startswith("engine_counters_to")):
        return OF_PARTS
    if view.comment:
        return SENTENCE.split(view.comment)[0]
    longer = ", or of its minutes or hours" if view.name.endswith("_series") else ""
    return f"Rows of {code(view.table)}{longer}."
