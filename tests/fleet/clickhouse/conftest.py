"""The library that real ClickHouse servers are made of."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fleet.clickhouse.library import LibraryMissing, fetched, found


@pytest.fixture(scope="session")
def library() -> Path:
    try:
        return found() or fetched()
    except LibraryMissing as error:
        pytest.exit(f"make test-fleet: {error}", returncode=1)
