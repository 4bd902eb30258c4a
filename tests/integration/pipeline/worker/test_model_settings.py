"""What the settings say of models comes into the tables, with the time from which it holds."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta, timezone

import msgspec
from clickhouse_connect.driver.client import Client

from pipeline.clickhouse.writer import Tables
from pipeline.worker.model_settings import write_models
from schemas.settings import Model, Settings

START = datetime(2026, 1, 1, tzinfo=timezone.utc)
PRICED = Model("m", 1000, 500.0, 8.0, 2.5, "EUR")


def test_a_row_is_added_when_the_settings_change_and_only_then(store_client: Client, own: Settings) -> None:
    settings, database = own, own.clickhouse.database

    async def started(hours: int, *models: Model) -> None:
        tables = Tables(settings.clickhouse)
        changed = msgspec.structs.replace(settings, models=models)
        await write_models(changed, tables, START + timedelta(hours=hours))
        tables.close()

    def written() -> list[tuple[object, ...]]:
        rows = store_client.query(
            "SELECT model, since, prefill_tokens_per_second, gpus_per_replica, gpu_hour_price, currency "
            f"FROM {database}.prefill_settings FINAL ORDER BY since"
        ).result_rows
        return [(model, since.hour, *rest) for model, since, *rest in rows]

    bare, dearer = Model("bare"), msgspec.structs.replace(PRICED, gpu_hour_price=3.0)
    dropped = msgspec.structs.replace(
        PRICED, prefill_tokens_per_second=None, gpus_per_replica=None, gpu_hour_price=None
    )
    for hours, models in enumerate(((PRICED, bare), (PRICED,), (dearer,), (dearer,), (PRICED,), (dropped,))):
        asyncio.run(started(hours, *models))
    figures = (500.0, 8.0)
    rows = [
        ("m", 0, *figures, 2.5, "EUR"),
        ("m", 2, *figures, 3.0, "EUR"),
        ("m", 4, *figures, 2.5, "EUR"),
        ("m", 5, None, None, None, ""),
    ]
    assert written() == rows
    # One that is taken out keeps its price, until its block is back with another one, or with none.
    for hours, models in enumerate(((PRICED,), (bare,), (), (PRICED,), (dropped,)), 6):
        asyncio.run(started(hours, *models))
    assert written() == [*rows, ("m", 6, *figures, 2.5, "EUR"), ("m", 10, None, None, None, "")]
    known = store_client.query(f"SELECT model, kv_bytes_per_token FROM {database}.models FINAL ORDER BY 1")
    assert known.result_rows == [("bare", 0), ("m", 1000)]
    horizon = store_client.query(f"SELECT name, value FROM {database}.fleet_settings FINAL")
    assert horizon.result_rows == [("horizon_seconds", 3600.0)]
