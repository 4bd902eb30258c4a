"""`deploy/examples/figures.sql` as it is, in a real ClickHouse that reads figures from a real broker."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import clickhouse_connect
import pytest

from connectors.kafka.encoding import Prefixes
from pipeline.local.broker.embedded import EmbeddedBroker
from pipeline.worker.sink.figures import Figures
from schemas.fleet_rows import FillsRow
from schemas.rows import Row
from schemas.settings import Kafka
from schemas.wire_prefix import prefix
from tests.fleet.clickhouse.server import ClickHouseServer
from tests.fleet.clients import written
from tests.support.checkout import ROOT
from tests.support.patience import PATIENCE

NOW = datetime.now(timezone.utc).replace(second=0, microsecond=0)
SELECT = "SELECT model, prefill_tokens, avoidable_prefill_tokens FROM my_hit_potential"


@pytest.fixture
def client(library: Path, free_port: Callable[..., int], tmp_path: Path) -> Iterator[Any]:
    server = ClickHouseServer(library, tmp_path / "clickhouse", free_port(), free_port())
    server.start()
    client = clickhouse_connect.get_client(dsn=server.url, autogenerate_session_id=False)
    yield client
    client.close()
    server.kill()


def fills(replica: str, **columns: Any) -> FillsRow:
    values: dict[str, Any] = dict.fromkeys(FillsRow.__struct_fields__, 0) | {
        "window": NOW, "hash_domain": "d", "model": "m", "replica": replica, "regret_hist": [],
        "sampled_one_in": 1, "trust": "complete",
    }  # fmt: skip
    return FillsRow(**values | columns)  # type: ignore[arg-type]


def records(rows: Sequence[Row], prefixes: Prefixes | None = None) -> Iterator[tuple[str, bytes | None]]:
    return ((row.key.decode(), row.value) for row in Figures(Kafka(), 1, prefixes).records(rows))


def figures_sql() -> str:
    return (ROOT / "deploy" / "examples" / "figures.sql").read_text("utf-8")


def of_registered(text: str) -> str:
    """Return the file for figures that have the id of a schema before them, as docs/topics.md says it."""
    changed = text.replace("'JSONAsString'", "'RawBLOB'").replace(
        "FROM figures_in_kafka", "FROM (SELECT substring(figure, 6) AS figure FROM figures_in_kafka)"
    )
    assert changed.count("RawBLOB") == changed.count("substring(figure, 6)") == 1
    return changed


def make(client: Any, servers: str, topic: str, text: str) -> None:
    """As clickhouse-client does with the file, but for broker and topic."""
    assert "'kafka:9092'" in text
    assert "'kvlens.figures.v1'" in text
    text = text.replace("'kafka:9092'", f"'{servers}'").replace("'kvlens.figures.v1'", f"'{topic}'")
    for statement in re.sub(r"--[^\n]*\n", "", text).split(";"):
        if statement.strip():
            client.command(statement)


async def test_figures_in_a_clickhouse_of_ones_own(client: Any, broker: EmbeddedBroker) -> None:
    servers = broker.bootstrap_servers
    topic = await written.created(servers, "figures")
    async with written.writer(servers, topic) as write:
        open_window = fills("a", filled_tokens=900, cold_tokens=900, version=1)
        await write.transaction(records([open_window]), "commit")
        make(client, servers, topic, figures_sql())
        # By the engine's rule this one would count if it were read: it has the highest version.
        await write.transaction(records([fills("a", filled_tokens=10**6, version=9)]), "abort")
        whole = fills(
            "a", filled_tokens=1000, cold_tokens=500, peer_tokens=300, evicted_tokens=200, version=3
        )
        decoded = fills("b", filled_tokens=400, generated_tokens=150, transferred_tokens=50, version=3)
        await write.transaction(records([whole, decoded, open_window]), "commit")
        await write.transaction(records([fills("c", filled_tokens=10**6, version=9)]), "")
        deadline = time.monotonic() + PATIENCE
        while (shown := client.query(SELECT).result_rows) != [("m", 1200, 500)]:
            assert time.monotonic() < deadline, shown
            await asyncio.sleep(0.5)
        # And nothing else comes: the engine has read up to the transaction that is open.
        assert client.query("SELECT count() FROM my_fills FINAL").result_rows == [(2,)]
        assert client.query(
            "SELECT sum(length(exceptions.text)) FROM system.kafka_consumers"
        ).result_rows == [(0,)]


async def test_registered_figures_are_read_behind_the_ids_of_their_schemas(
    client: Any, broker: EmbeddedBroker
) -> None:
    servers = broker.bootstrap_servers
    topic = await written.created(servers, "figures")
    # An id like the JSON after it: no byte of it ends a record or begins one.
    ids = {"FillsFigure": prefix(int.from_bytes(b'\n{"\0', "big"))}
    make(client, servers, topic, of_registered(figures_sql()))
    async with written.writer(servers, topic) as write:
        rows = [fills(name, filled_tokens=600, peer_tokens=200, version=1) for name in "ab"]
        await write.transaction(records(rows, ids), "commit")
    deadline = time.monotonic() + PATIENCE
    while (shown := client.query(SELECT).result_rows) != [("m", 1200, 400)]:
        assert time.monotonic() < deadline, shown
        await asyncio.sleep(0.5)


async def test_the_engine_leaves_tombstones_out(client: Any, broker: EmbeddedBroker) -> None:
    """Who rebuilds a table of a compacted topic by this engine never hears that a key is gone."""
    topic = await written.compacted(broker.bootstrap_servers)
    client.command(
        "CREATE TABLE compacted_in_kafka (value String) ENGINE = Kafka"
        f" SETTINGS kafka_broker_list = '{broker.bootstrap_servers}', kafka_topic_list = '{topic.name}',"
        " kafka_group_name = 'compacted', kafka_format = 'RawBLOB'"
    )
    client.command("CREATE TABLE seen (offset UInt64, key String, value String) ENGINE = Memory")
    client.command(
        "CREATE MATERIALIZED VIEW compacted_to_seen TO seen"
        " AS SELECT _offset AS offset, _key AS key, value FROM compacted_in_kafka"
    )
    there = [(record.offset, record.key) for record in topic.committed if record.sha256 is not None]
    assert len(there) == len(topic.committed) - 2
    deadline = time.monotonic() + PATIENCE
    while (shown := client.query("SELECT offset, key FROM seen ORDER BY offset").result_rows) != there:
        assert time.monotonic() < deadline, shown
        await asyncio.sleep(0.5)
