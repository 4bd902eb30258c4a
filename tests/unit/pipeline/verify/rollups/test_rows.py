"""The recount of minutes and hours says every column that these tables have."""

from __future__ import annotations

from itertools import chain

import pytest

from pipeline.clickhouse.comments import comments
from pipeline.clickhouse.sql_files import DIRECTORY
from tests.support.rollups.rows import FAMILIES, PERIODS

BY_NAME = {name: family for name, family in FAMILIES.items() if family.joined is None}


@pytest.mark.parametrize("name", BY_NAME)
@pytest.mark.parametrize("per", PERIODS)
def test_no_column_is_left_out(name: str, per: str) -> None:
    family = BY_NAME[name]
    columns = set(comments(DIRECTORY)[f"{name}_{per}"]) - {"", "window", "windows", "version"}
    largest = (column for column, _ in family.largest)
    recounted = {*chain(family.key, family.last, family.summed, largest, family.smallest, family.added)}
    assert columns - recounted - {"trust", "trust_since"} == set()
    assert recounted - columns == set()
