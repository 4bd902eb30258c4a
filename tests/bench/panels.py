"""Every panel and alert on a fleet of 2,000 replicas and a day of rows: time, and rows read and returned."""

from __future__ import annotations

import time
from datetime import datetime, timedelta, timezone
from statistics import quantiles

import clickhouse_connect
from clickhouse_connect.driver.client import Client
from figures import Figures

from pipeline import migrations
from pipeline.dashboards.alerts import ALERTS
from pipeline.dashboards.boards import BOARDS
from pipeline.dashboards.page.question import Question
from pipeline.dashboards.panel import used_parameters
from schemas.settings import ClickHouse, Settings

REPLICAS = 2000
MODELS = 10
SHARDS = 8
DAY = timedelta(days=1)
FINE = timedelta(hours=1)
"""How far back there are ten-second rows: no panel reads any that are older."""
RANGES = {"15 min": timedelta(minutes=15), "1 h": timedelta(hours=1), "6 h": timedelta(hours=6), "1 day": DAY}
DATABASE = "panels"

HISTOGRAM = "arrayMap(i -> toUInt64(i % 5), range(24))"
CAUSES = (
    "promoted",
    "peer",
    "peer_and_evicted",
    "evicted",
    "evicted_elsewhere",
    "cleared",
    "cold",
    "unknown",
)


def run(figures: Figures, store_url: str) -> None:
    settings = Settings(clickhouse=ClickHouse(url=store_url, database=DATABASE))
    migrations.apply(settings)
    client = clickhouse_connect.get_client(dsn=store_url, database=DATABASE, autogenerate_session_id=False)
    now = datetime.now(timezone.utc).replace(minute=30, second=0, microsecond=0)
    began = time.perf_counter()
    fill(client, now)
    figures.add("panels: rows of the fleet", rows_of(client), "rows")
    figures.add("panels: writing them took", time.perf_counter() - began, "s")
    asked = [(panel.id, panel.sql) for board in BOARDS for panel in board.panels]
    asked += [(note.id, note.sql) for board in BOARDS for note in board.annotations]
    for name, length in RANGES.items():
        question = Question(int((now - length).timestamp()), int(now.timestamp()))
        took = [measured(figures, f"{owner}, {name}", client, owner, sql, question) for owner, sql in asked]
        summed_up(figures, f"panels, {name}", took)
    took = []
    for alert in ALERTS:
        start = now - timedelta(minutes=alert.over_minutes)
        question = Question(int(start.timestamp()), int(now.timestamp()))
        took.append(measured(figures, f"alert {alert.id}", client, alert.id, alert.sql, question))
    summed_up(figures, "alerts", took)
    client.command(f"DROP DATABASE {DATABASE} SYNC")
    client.close()


def measured(figures: Figures, name: str, client: Client, owner: str, sql: str, question: Question) -> float:
    """Run a statement as the page does; return the seconds it took."""
    parameters = question.parameters(used_parameters(owner, sql))
    began = time.perf_counter()
    result = client.query(sql, parameters=parameters, settings={"database": DATABASE})
    took = time.perf_counter() - began
    read = int(result.summary.get("read_rows", 0))
    figures.add(name, took, f"s, {read:,} rows read, {len(result.result_rows)} returned")
    return took


def summed_up(figures: Figures, name: str, took: list[float]) -> None:
    figures.add(f"{name}: p50", quantiles(took, n=20)[9], "s")
    figures.add(f"{name}: p95", quantiles(took, n=20)[18], "s")


def rows_of(client: Client) -> int:
    counted = client.command(f"SELECT sum(rows) FROM system.parts WHERE database = '{DATABASE}' AND active")
    return int(str(counted))


def fill(client: Client, now: datetime) -> None:
    """Write the day's rows of every table."""
    for suffix, seconds in (("_10s", 10), ("_1m", 60), ("_1h", 3600)):
        length = FINE if seconds == 10 else DAY
        windows = int(length.total_seconds()) // seconds
        first = int((now - length).timestamp()) // seconds * seconds
        for family, key, sizes, columns in families(seconds):
            table = f"{family}{suffix}"
            values = {**columns, "version": "1"}
            if seconds > 10:
                values["windows"] = str(seconds // 10)
                values.pop("shard", None)
                if family == "occupancy":
                    values |= {"entries_max": "entries", "blocks_max": "blocks", "tokens_max": "tokens"}
            shards = SHARDS if "shard" in values else 1
            names = ", ".join(["window", *key, *values])
            selected = ", ".join(f"{value} AS {name}" for name, value in {**key, **values}.items())
            client.command(
                f"INSERT INTO {table} ({names}) SELECT"
                f" toDateTime({first} + {seconds} * intDiv(number, {sizes * shards}), 'UTC') AS window,"
                f" {selected}"
                f" FROM (SELECT number, intDiv(number % {sizes * shards}, {shards}) AS member,"
                f" number % {shards} AS shard_no, cityHash64(number) % 100 AS noise"
                f" FROM numbers({windows * sizes * shards}))"
            )
    counters(client, now)


def families(seconds: int) -> list[tuple[str, dict[str, str], int, dict[str, str]]]:
    """Return of each family: name, key columns, rows of a window (and shard), other columns, as SQL."""
    times = seconds // 10
    source = {
        "model": f"concat('model-', toString(member % {MODELS}))",
        "replica": f"concat('replica-', leftPad(toString(member % {REPLICAS}), 4, '0'))",
        "dp_rank": "0",
    }
    trust = {"trust": "if(member % 50 = 7, 'degraded', 'complete')"}
    since = {**trust, "trust_since": "toDateTime64('2026-01-01 00:00:00', 3, 'UTC')"}
    medium = {"medium": f"if(member < {REPLICAS}, 'gpu', 'cpu')", "group_idx": "0"}
    domain = {"hash_domain": "concat('domain-', model)"}
    fills = {
        "shard": "shard_no",
        **{
            f"{cause}_{what}": f"noise * {times * (16 if what == 'tokens' else 1)}"
            for cause in ("filled", *CAUSES, "reannounced")
            for what in ("blocks", "tokens")
        },
    }
    flow = (
        "stored_blocks",
        "stored_tokens",
        "filled_blocks",
        "removed_blocks",
        "evicted_blocks",
        "evicted_tokens",
        "cleared_blocks",
        "expired_blocks",
        "reannounced_blocks",
        "unknown_removed_blocks",
    )
    health = (
        "batches",
        "events",
        "duplicate_batches",
        "gap_batches",
        "replayed_batches",
        "lost_batches",
        "undecodable_events",
        "restarts",
    )
    return [
        ("occupancy", {**source, **medium, "block_size": "16"}, 2 * REPLICAS, {
            "entries": "20000 + noise", "blocks": "19000 + noise", "tokens": "16 * (19000 + noise)",
            "covered_blocks": "0", "capacity_blocks": "21000", "store_only": "false", **since}),
        ("flow", {**source, **medium}, 2 * REPLICAS, {
            **dict.fromkeys(flow, f"noise * {times}"), "lifetime_hist": HISTOGRAM, **since}),
        ("stream_health", source, REPLICAS, {
            **dict.fromkeys(health, f"if(noise < 2, 1, 0) * {times}"), "incarnation": "1",
            "last_seq": "toInt64(number)", "last_batch_at": "toDateTime64(window, 3, 'UTC')",
            "connected": "true", "lag_seconds": "noise / 1000", "drift_blocks": "0", "drift_since": "NULL",
            **since}),
        ("fills", {**domain, **source, "group_idx": "0"}, REPLICAS, {
            **fills, "regret_hist": HISTOGRAM, "sampled_one_in": "1", **trust}),
        ("capacity_curve", {**domain, **source, "group_idx": "0"}, REPLICAS, {
            "shard": "shard_no", "needed_hist": HISTOGRAM, "sampled_one_in": "1", **trust}),
        ("redundancy", {**domain, "model": f"concat('model-', toString(member % {MODELS}))",
            "medium": f"if(member < {MODELS}, 'gpu', 'cpu')", "group_idx": "0"}, 2 * MODELS, {
            "shard": "shard_no", **{f"owners_{name}": "noise" for name in ("1", "2", "3", "4_7", "8_up")},
            "unique_tokens": "noise", "physical_tokens": "2 * noise", "sampled_one_in": "1", **trust}),
    ]  # fmt: skip


def counters(client: Client, now: datetime) -> None:
    """Write what engines say of themselves, and the sources."""
    first = int((now - DAY).timestamp())
    source = (
        f"concat('model-', toString(number % {MODELS})) AS model,"
        f" concat('replica-', leftPad(toString(number % {REPLICAS}), 4, '0')) AS replica, 0 AS dp_rank"
    )
    client.command(
        "INSERT INTO engine_counters (time, model, replica, dp_rank, prefix_cache_queries, prefix_cache_hits,"
        f" capacity_blocks, block_size, kv_cache_usage, version) SELECT toDateTime64({first}"
        f" + 10 * intDiv(number, {REPLICAS}), 3, 'UTC'), {source}, 1000 * intDiv(number, {REPLICAS}),"
        f" 700 * intDiv(number, {REPLICAS}), 21000, 16, 0.9, 1 FROM numbers({8640 * REPLICAS})"
    )
    client.command(
        "INSERT INTO sources (model, replica, dp_rank, incarnation, opened_at, closed_reason, engine,"
        f" wire_era, hash_domain, tenant, first_seq, last_seq, trust, trust_since, version) SELECT"
        f" {source}, 1, toDateTime64({first}, 3, 'UTC'), '', 'vllm', 'map', concat('domain-', model),"
        f" 'default', 0, 1, 'complete', toDateTime64({first}, 3, 'UTC'), 1 FROM numbers({REPLICAS})"
    )
