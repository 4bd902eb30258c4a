"""Tables with minutes and hours are listed where these are made, where they are compared, and in tests."""

from __future__ import annotations

from pipeline.clickhouse import rollups
from pipeline.clickhouse.sql_files import DIRECTORY, ROLLUPS
from pipeline.verify.rollups import check
from tests.support.rollups import rows


def test_every_table_with_a_rollup_is_in_all_lists() -> None:
    families = {path.stem for path in (DIRECTORY / ROLLUPS).iterdir()}
    assert {*rollups.FAMILIES.values()} == families
    assert {*check.FAMILIES} == families
    assert {*rows.FAMILIES} == families
