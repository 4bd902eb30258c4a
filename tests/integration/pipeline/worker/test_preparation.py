"""What a worker needs before it begins, and what it does not wait for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from connectors.process.waiting import Waiting
from pipeline.errors import StoreUnavailable
from pipeline.kafka import topics
from pipeline.local.broker.embedded import EmbeddedBroker
from pipeline.local.clickhouse.accounts import Account
from pipeline.local.clickhouse.embedded import EmbeddedStore
from pipeline.worker.consumer.memberships import Memberships
from pipeline.worker.preparation import prepare
from schemas.settings import ClickHouse, Kafka, Settings


async def test_a_password_that_clickhouse_refuses_ends_the_wait_with_one_line(
    broker: EmbeddedBroker, tmp_path: Path, free_port: Callable[[], int]
) -> None:
    account = Account("kvlens", "right", readonly=False)
    store = EmbeddedStore(tmp_path / "store", free_port(), writer=account)
    store.start()
    try:
        settings = Settings(
            kafka=Kafka(bootstrap_servers=broker.bootstrap_servers, topic_prefix="refused", group="refused"),
            clickhouse=ClickHouse(url=store.url, username="kvlens", password="wrong"),
        )
        await topics.apply(settings)
        told: list[str] = []
        with pytest.raises(StoreUnavailable) as refused:
            await prepare(settings, ["refused"], Memberships(tmp_path), Waiting(told.append))
    finally:
        store.kill()
    assert told == []
    assert not refused.value.heals
    line = str(refused.value)
    assert line.startswith(f"ClickHouse at {store.url} cannot be used: ")
    assert "clickhouse.username" in line
    assert "\n" not in line
    assert "wrong" not in line
