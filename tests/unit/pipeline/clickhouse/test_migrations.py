"""Files of tables have numbers without holes, each table and view is created once, old sets are refused."""

from __future__ import annotations

import re
from collections import Counter

from pipeline.clickhouse.sql_files import Migration, migrations, outdated
from schemas.settings import ClickHouse
from tests.support.sql_statements import everything


def files(*names: str) -> list[Migration]:
    return [Migration(name, [], "") for name in names]


def test_numbers_have_no_holes() -> None:
    names = [migration.name for migration in migrations()]
    assert [int(name[:4]) for name in names] == list(range(1, len(names) + 1))


def test_each_table_and_view_is_created_once() -> None:
    made = "\n".join(everything(ClickHouse(database="d")))
    created = Counter(re.findall(r"^CREATE .*?(?:TABLE|VIEW) (?:IF NOT EXISTS )?d\.(\w+)", made, re.M))
    assert created["occupancy_10s"] == created["fills_series"] == 1
    assert {name: count for name, count in created.items() if count > 1} == {}


def test_nothing_applied_and_everything_applied_are_known() -> None:
    assert outdated([], files("0001_a.sql")) == ()
    assert outdated(["0001_a.sql"], files("0001_a.sql", "0002_b.sql")) == ()


def test_files_of_a_newer_kvlens_are_left_alone() -> None:
    assert outdated(["0001_a.sql", "0002_b.sql"], files("0001_a.sql")) == ()


def test_a_replaced_set_is_outdated_whatever_its_files_are_called() -> None:
    applied = ["0001_replica_tables.sql", "0016_finest.sql"]
    for name in ("0001_a.sql", "0001_z.sql"):
        assert outdated(applied, files(name)) == ("0001_replica_tables.sql", "0016_finest.sql")
