"""Writes settings of models, prefixes and figures into tables, and from when prices and rates hold."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from datetime import datetime

from pipeline.clickhouse.client import connect, store_unavailable
from pipeline.clickhouse.writer import Tables
from pipeline.errors import StoreUnavailable
from schemas.rows import Row
from schemas.setting_rows import FleetSettingRow, ModelRow, PrefillSettingsRow, PrefixNameRow
from schemas.settings import ClickHouse, Model, Settings

PrefillSettings = tuple[float | None, float | None, float | None, str]
"""Prompt tokens a second, GPUs of a replica, price of a GPU's hour, currency."""


async def write_models(settings: Settings, tables: Tables, started_at: datetime) -> None:
    """Write the rows as soon as ClickHouse takes them; `started_at`: start of the worker, UTC.

    A price holds from the start of the first worker that has it: earlier figures keep the earlier price. A
    model that these settings lack keeps its price: another worker's may have it.
    """
    version = int(started_at.timestamp() * 1000)
    rows: list[Row] = [FleetSettingRow("horizon_seconds", settings.fleet.horizon_seconds, version)]
    rows += [ModelRow(model.name, model.kv_bytes_per_token or 0, version) for model in settings.models]

    async def write() -> None:
        latest = await asyncio.to_thread(_latest, settings.clickhouse)
        await tables.insert([*rows, *changed(settings.models, latest, started_at)])

    await until_taken(write)


def changed(
    models: tuple[Model, ...], latest: Mapping[str, PrefillSettings], started_at: datetime
) -> Iterator[PrefillSettingsRow]:
    """Yield a row for each model whose settings differ from the latest ones in the table."""
    nothing: PrefillSettings = (None, None, None, "")
    for model in models:
        given = (
            model.prefill_tokens_per_second,
            model.gpus_per_replica,
            model.gpu_hour_price,
            "" if model.gpu_hour_price is None else model.currency,
        )
        if given != latest.get(model.name, nothing):
            yield PrefillSettingsRow(model.name, started_at, *given, int(started_at.timestamp() * 1000))


def _latest(store: ClickHouse) -> dict[str, PrefillSettings]:
    """Return the settings in force by model. Raises StoreUnavailable."""
    statement = (
        "SELECT model, prefill_tokens_per_second, gpus_per_replica, gpu_hour_price, currency "
        f"FROM {store.database}.prefill_settings FINAL ORDER BY since DESC LIMIT 1 BY model"
    )
    client = connect(store)
    try:
        with store_unavailable(store):
            return {model: tuple(given) for model, *given in client.query(statement).result_rows}
    finally:
        client.close()


_RETRY_SECONDS = 5.0


async def until_taken(write: Callable[[], Awaitable[None]]) -> None:
    """Repeat `write()` until it does not raise StoreUnavailable."""
    while True:
        try:
            await write()
            return
        except StoreUnavailable:
            await asyncio.sleep(_RETRY_SECONDS)


async def write_prefix_names(settings: Settings, tables: Tables) -> None:
    """Write the names as soon as ClickHouse takes them; those of earlier settings no longer count."""
    version = int(time.time() * 1000)
    rows = [PrefixNameRow("", "", version)]
    rows += [PrefixNameRow(prefix.first_block, prefix.name, version) for prefix in settings.prefixes]
    await until_taken(lambda: tables.insert(rows))
