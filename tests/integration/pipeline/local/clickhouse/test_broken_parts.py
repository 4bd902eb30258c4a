"""A store with a part that cannot be read is started again, once; then the remedy names the part."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import clickhouse_connect
import pytest
from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import ClickHouseError

from pipeline.clickhouse.client import store_unavailable
from pipeline.errors import StoreUnavailable
from pipeline.local.clickhouse.embedded import EmbeddedStore
from pipeline.local.processes.supervisor import Supervisor
from schemas.settings import ClickHouse
from tests.support.patience import PATIENCE

SUM = "SELECT sum(cityHash64(*)) FROM k.t"


def connected(store: EmbeddedStore) -> Client:
    return clickhouse_connect.get_client(dsn=store.url, autogenerate_session_id=False, query_retries=0)


def test_up_but_broken_is_started_again_once(tmp_path: Path, free_port: Callable[[], int]) -> None:
    store = EmbeddedStore(tmp_path / "store", free_port())
    told: list[str] = []
    supervisor = Supervisor(told.append)
    supervisor.launch("store", store, storage=True)
    try:
        store.wait_ready()
        client = connected(store)
        client.command("CREATE DATABASE k")
        client.command(
            "CREATE TABLE k.t (a UInt64, b String) ENGINE = MergeTree ORDER BY a "
            "SETTINGS min_bytes_for_wide_part = 0"
        )
        client.command("INSERT INTO k.t SELECT number, toString(number) FROM numbers(200000)")
        whole = client.command(SUM)
        (column,) = (tmp_path / "store").glob("data/store/*/*/all_*/b.bin")
        kept = column.read_bytes()
        column.write_bytes(kept[: len(kept) // 2])
        with pytest.raises(ClickHouseError, match="while reading from part"):
            client.command(SUM)
        deadline = time.monotonic() + PATIENCE
        while store.running and time.monotonic() < deadline:
            time.sleep(0.05)
        column.write_bytes(kept)  # as the disk has it after there was room again
        while "store is running again" not in told and time.monotonic() < deadline:
            supervisor.check()
            time.sleep(0.05)
        assert supervisor.restarts == {"store": 1}
        client = connected(store)
        assert client.command(SUM) == whole
        # A part that is really damaged comes back the same, so the store goes on with what it can read.
        column.write_bytes(kept[: len(kept) // 2])
        settings = ClickHouse(url=store.url)
        for _ in range(2):
            with pytest.raises(StoreUnavailable) as refused, store_unavailable(settings):
                client.command(SUM)
            assert "part all_1_1_0 of k.t cannot be read: restart ClickHouse" in refused.value.advice
        assert store.running
        assert supervisor.restarts == {"store": 1}
    finally:
        supervisor.stop()
