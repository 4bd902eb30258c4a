"""A session with the store over plain HTTP, and a table to use it on."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from aiohttp import ClientSession
from clickhouse_connect.driver.client import Client

from pipeline.local.clickhouse.embedded import EmbeddedStore


@pytest.fixture
async def http(store: EmbeddedStore) -> AsyncIterator[ClientSession]:
    async with ClientSession(
        store.url, auto_decompress=False, skip_auto_headers={"Accept-Encoding"}
    ) as session:
        yield session


@pytest.fixture
def table(store_client: Client, database: str) -> str:
    store_client.command(f"CREATE TABLE {database}.t (a UInt64) ENGINE = MergeTree ORDER BY a")
    return f"{database}.t"
