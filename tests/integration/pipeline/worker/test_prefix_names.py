"""Names of hot prefixes: those of the worker that started last, and no others."""

from __future__ import annotations

import asyncio

import clickhouse_connect
import msgspec

from pipeline.clickhouse.writer import Tables
from pipeline.local.clickhouse.embedded import EmbeddedStore
from pipeline.worker.model_settings import write_prefix_names
from schemas.settings import Prefix, Settings

FIRST, SECOND = "00000000000000ab", "00000000000000cd"


def test_the_names_are_those_of_the_settings_that_came_last(store: EmbeddedStore, own: Settings) -> None:
    settings = own
    client = clickhouse_connect.get_client(dsn=store.url, database=settings.clickhouse.database)

    def written(*prefixes: Prefix) -> dict[str, str]:
        asyncio.run(write(msgspec.structs.replace(settings, prefixes=prefixes)))
        return dict(client.query("SELECT first_block, name FROM named_prefixes").result_rows)

    async def write(changed: Settings) -> None:
        tables = Tables(changed.clickhouse)
        await write_prefix_names(changed, tables)
        tables.close()

    assert written(Prefix(FIRST, "support bot"), Prefix(SECOND, "sql")) == {
        FIRST: "support bot",
        SECOND: "sql",
    }
    assert written(Prefix(FIRST, "support bot, May")) == {FIRST: "support bot, May"}
    assert written() == {}
    client.close()
