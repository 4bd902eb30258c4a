"""`deploy/examples/figures.sql` on the real engine: rows as they come from Kafka, in another's tables."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from typing import Any

import clickhouse_connect
import pytest

from pipeline.local.clickhouse.embedded import EmbeddedStore
from pipeline.worker.sink.figures import Figures
from schemas.fleet_rows import FillsRow
from schemas.rows import Row
from schemas.settings import Kafka
from tests.support.checkout import ROOT

STATEMENTS = (ROOT / "deploy" / "examples" / "figures.sql").read_text("utf-8")
NOW = datetime.now(timezone.utc).replace(second=0, microsecond=0) - timedelta(minutes=5)


@pytest.fixture
def client(store: EmbeddedStore) -> Iterator[Any]:
    """A database with the example's tables, in which lines come by INSERT instead of Kafka."""
    name = f"figures_{secrets.token_hex(4)}"
    admin = clickhouse_connect.get_client(dsn=store.url, autogenerate_session_id=False)
    admin.command(f"CREATE DATABASE {name}")
    admin.close()
    client = clickhouse_connect.get_client(dsn=store.url, database=name, autogenerate_session_id=False)
    text = re.sub(r"ENGINE = Kafka\nSETTINGS .*?;", "ENGINE = Null;", STATEMENTS, flags=re.S)
    text = re.sub(r"--[^\n]*\n", "", text)
    for statement in filter(str.strip, text.split(";")):
        client.command(statement)
    yield client
    client.command(f"DROP DATABASE {name}")
    client.close()


def fills(replica: str, **columns: Any) -> FillsRow:
    values: dict[str, Any] = dict.fromkeys(FillsRow.__struct_fields__, 0) | {
        "window": NOW, "hash_domain": "d", "model": "m", "replica": replica, "regret_hist": [],
        "sampled_one_in": 1, "trust": "complete",
    }  # fmt: skip
    return FillsRow(**values | columns)  # type: ignore[arg-type]


def test_avoidable_prefill_by_model(client: Any) -> None:
    rows: list[Row] = [
        fills("a", filled_tokens=900, cold_tokens=900, version=1),
        fills("a", filled_tokens=1000, cold_tokens=600, peer_tokens=300, promoted_tokens=100, version=3),
        fills("a", filled_tokens=900, cold_tokens=900, version=2),
        fills("a", filled_tokens=100, evicted_tokens=100, version=2, shard=1),
        # Another group of the same tokens.
        fills("a", filled_tokens=640, cold_tokens=640, version=2, group_idx=1),
        fills(
            "b",
            filled_tokens=430,
            cleared_tokens=50,
            transferred_tokens=150,
            generated_tokens=30,
            cold_tokens=200,
            version=9,
        ),
        fills("b", filled_tokens=10**6, cold_tokens=10**6, version=9, window=NOW - timedelta(hours=2)),
    ]
    lines = [record.value.decode() for record in Figures(Kafka(), 8).records(rows) if record.value]
    other = json.dumps({"table": "flow_10s", "window": "2026-01-01T00:00:00Z", "replica": "a"})
    client.insert("figures_in_kafka", [[line] for line in [*lines, other]], column_names=["figure"])
    # a: 1,100 filled less 100 promoted; b: 430 less 150 transferred and 30 generated.
    assert client.query("SELECT * FROM my_hit_potential").result_rows == [("m", 1250, 450, 450 / 1250)]
    series = (
        "SELECT model, prefill_tokens, avoidable_prefill_tokens FROM my_hit_potential_series ORDER BY time"
    )
    assert client.query(series).result_rows == [("m", 10**6, 0), ("m", 1250, 450)]
