"""A text with a grain in it becomes one of ten seconds, of minutes and of hours."""

from __future__ import annotations

from pipeline.clickhouse.grains import of_rollup, of_table, of_view

VIEW = """\
CREATE VIEW {database}.v_windows AS
-- for 10s, 1m, 1h
SELECT {step:UInt32} + {rest}
FROM {database}.v_{grain} FINAL
WHERE {seconds:UInt32} = {length}
    AND {bounds}
-- end
;
CREATE VIEW {database}.v_series AS
SELECT * FROM {database}.v_windows({range}, seconds = {finest});"""
ROLLUP = """\
INSERT INTO {database}.v_{grain}
SELECT {start}(fine.window) AS window, max(fine.x{peak}) AS x_max, {windows} AS windows
-- for 1h
, 1 AS only_hours
-- end
FROM {database}.v_{finer} AS fine FINAL
GROUP BY window{shard}"""
FROM, TO = "{from:DateTime('UTC')}", "{to:DateTime('UTC')}"


def test_a_view_has_an_arm_for_each_grain_of_a_block() -> None:
    windows, series = of_view(VIEW).split(";")[:2]
    ten, minutes, hours = windows.split("UNION ALL\n")
    assert f"v_10s FINAL\nWHERE {{seconds:UInt32}} = 10\n    AND window >= ({FROM})\n" in ten
    assert f"    AND toStartOfHour(window) >= toStartOfHour({FROM})\n" in minutes
    assert f"    AND window >= toStartOfMinute({FROM})\n    AND window <= {TO}\n" in minutes
    assert "{step:UInt32} + 3599\n" in hours
    assert f"    AND toStartOfMonth(window) >= toStartOfMonth({FROM})\n" in hours
    assert series.endswith(
        f"(from = {FROM}, to = {TO}, seconds = (SELECT seconds FROM {{database}}.finest("
        f"from = {FROM}, to = {TO})))"
    )


def test_a_rollup_is_of_its_finer_grain() -> None:
    assert of_rollup(ROLLUP, "1m").splitlines() == [
        "INSERT INTO {database}.v_1m",
        "SELECT toStartOfMinute(fine.window) AS window, max(fine.x) AS x_max, count() AS windows",
        "FROM {database}.v_10s AS fine FINAL",
        "GROUP BY window, fine.shard",
    ]
    assert of_rollup(ROLLUP, "1h").splitlines() == [
        "INSERT INTO {database}.v_1h",
        "SELECT toStartOfHour(fine.window) AS window, max(fine.x_max) AS x_max, sum(fine.windows) AS windows",
        ", 1 AS only_hours",
        "FROM {database}.v_1m AS fine FINAL",
        "GROUP BY window",
    ]


def test_a_table_that_names_a_grain_is_one_for_each_and_another_stays() -> None:
    statement = """\
-- of GRAINS
CREATE TABLE {database}.v_{grain} (
-- for 10s
shard
-- end
) PARTITION BY {partition}(window) TTL {kept}"""
    ten, minutes, hours = of_table(statement.replace("-- of GRAINS\n", ""))
    assert ten == "CREATE TABLE {database}.v_10s (\nshard\n) PARTITION BY toYYYYMMDD(window) TTL 7 DAY"
    assert minutes == "CREATE TABLE {database}.v_1m (\n) PARTITION BY toYYYYMM(window) TTL 60 DAY"
    assert hours == minutes.replace("1m", "1h").replace("60 DAY", "2 YEAR")
    assert of_table(statement.replace("GRAINS", "1m, 1h")) == [minutes, hours]
    assert list(of_table("CREATE TABLE {database}.v_10s")) == ["CREATE TABLE {database}.v_10s"]
