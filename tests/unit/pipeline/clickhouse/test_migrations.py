"""The migrations: numbered without holes, each table and view created once, replaced sets recognised."""

from __future__ import annotations

import re
from collections import Counter

from pipeline.clickhouse.migrations import Migration, migrations, unreleased


def files(*names: str) -> list[Migration]:
    return [Migration(name, "", "") for name in names]


def test_numbers_have_no_holes() -> None:
    names = [migration.name for migration in migrations()]
    assert [int(name[:4]) for name in names] == list(range(1, len(names) + 1))


def test_each_table_and_view_is_created_once() -> None:
    created = Counter(
        name
        for migration in migrations()
        for name in re.findall(r"^CREATE .*?IF NOT EXISTS \{database\}\.(\w+)", migration.text, re.M)
    )
    assert created["occupancy_10s"] == 1
    assert {name: count for name, count in created.items() if count > 1} == {}


def test_nothing_applied_and_everything_applied_are_released() -> None:
    assert unreleased([], files("0001_a.sql")) == ()
    assert unreleased(["0001_a.sql"], files("0001_a.sql", "0002_b.sql")) == ()


def test_files_of_a_newer_kvlens_are_released() -> None:
    assert unreleased(["0001_a.sql", "0002_b.sql"], files("0001_a.sql")) == ()


def test_a_replaced_set_is_not_released() -> None:
    applied = ["0001_tables.sql", "0016_finest.sql"]
    assert unreleased(applied, files("0001_a.sql", "0002_b.sql")) == ("0001_tables.sql", "0016_finest.sql")
