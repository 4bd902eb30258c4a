"""Rows of a large fleet, which the store makes itself: tens of millions in a minute."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from clickhouse_connect.driver.client import Client

from pipeline.fleet.causes import CAUSES
from tests.support.rollups.rows import FAMILIES

LENGTHS = {10: "10s", 60: "1m", 3600: "1h"}
"""Seconds of a window to what its tables end with."""
QUICKLY = {"max_insert_threads": 2, "optimize_on_insert": 0}
LISTED = 200
"""Prefixes in a row of a minute or an hour: the most there can be."""

NOISE = "cityHash64(at, member) % 100"
HISTOGRAM = "arrayMap(i -> toUInt64((at + i) % 5), range(24))"
TRUST = {"trust": "if(member % 50 = 7, 'degraded', 'complete')"}
SINCE = {**TRUST, "trust_since": "toDateTime64('2026-01-01 00:00:00', 3, 'UTC')"}


class Family(NamedTuple):
    """A table and its rollups. Columns are SQL."""

    name: str
    members: int
    """Rows of a window, or of a window and shard."""
    who: dict[str, str]
    """Columns that follow from `member`, the number of the row in its window."""
    figures: dict[str, str]
    """Columns that change with `at`, the number of the window; `noise` is 0 to 99."""
    sharded: bool = False


@dataclass(frozen=True)
class LargeFleet:
    """Each replica has one source and two media; each model is a hash domain of its own."""

    replicas: int
    models: int
    shards: int
    prefixes: int
    """Hot prefixes listed in each window, hash domain and shard."""

    def write_day(self, client: Client, until: datetime, *, fine: timedelta, day: timedelta) -> None:
        """Write minutes and hours of the `day` before `until`, and ten-second rows of its end, `fine`."""
        for seconds in LENGTHS:
            length = fine if seconds == 10 else day
            self.write(client, seconds, until - length, until)
        self.write_state(client, until - day)

    def write(self, client: Client, seconds: int, start: datetime, end: datetime) -> None:
        """Write the rows of all tables with windows of such a length that begin between `start` and `end`."""
        first, last = (-(-int(moment.timestamp()) // seconds) for moment in (start, end))
        windows = f"(SELECT {first} + number AS at FROM numbers({last - first})) AS windows"
        for family in self.families(seconds):
            columns = {**family.who, **family.figures, "version": "1"}
            if seconds > 10:
                columns["windows"] = str(seconds // 10)
            shards = self.shards if family.sharded and seconds == 10 else 1
            if family.sharded and seconds == 10:
                columns["shard"] = "shard"
            _insert(client, f"{family.name}_{LENGTHS[seconds]}", seconds, windows, family, columns, shards)
        self._write_counters(client, seconds, windows)

    def write_state(self, client: Client, opened: datetime) -> None:
        """Write the sources, which live since `opened`, and which of them hash alike: one in 100 is alone."""
        source = ", ".join(f"{expression} AS {name}" for name, expression in self._source().items())
        at = f"toDateTime64({int(opened.timestamp())}, 3, 'UTC')"
        client.command(
            "INSERT INTO sources (model, replica, dp_rank, incarnation, opened_at, closed_reason, engine,"
            " wire_era, hash_domain, tenant, first_seq, last_seq, trust, trust_since, version)"
            f" SELECT {source}, 1, {at}, '', 'vllm', 'map', concat('domain-', model), 'default', 0, 1,"
            f" 'complete', {at}, 1 FROM (SELECT number AS member FROM numbers({self.replicas}))"
        )
        client.command(
            "INSERT INTO prefill_settings (model, since, gpus_per_replica, gpu_hour_price, currency, version)"
            f" SELECT {self._model}, {at}, 8, 2.5, 'USD', 1"
            f" FROM (SELECT number AS member FROM numbers({self.models}))"
        )
        client.command(
            "INSERT INTO hash_groups (model, replica, dp_rank, hash_domain, shard, incarnation, hash_group,"
            f" alike, alone, version) SELECT {source}, concat('domain-', model), number % {self.shards}, 1,"
            f" if(alone, replica, model), if(alone, 0, {self.replicas // self.models - 1}),"
            " member % 100 = 99 AS alone, 1"
            f" FROM (SELECT number, intDiv(number, {self.shards}) AS member"
            f" FROM numbers({self.replicas * self.shards}))"
        )

    def families(self, seconds: int) -> Iterator[Family]:
        """Give what is written of windows of such a length."""
        times = seconds // 10
        source, domain = self._source(), {"hash_domain": "concat('domain-', model)"}
        media = {"medium": f"if(member < {self.replicas}, 'gpu', 'cpu')", "group_idx": "0"}
        gauges = {"entries": "20000 + noise", "blocks": "19000 + noise", "tokens": "16 * (19000 + noise)"}
        largest = {f"{name}_max": figure for name, figure in gauges.items()} if seconds > 10 else {}
        yield Family(
            "occupancy",
            2 * self.replicas,
            {**source, **media, "block_size": "16", "capacity_blocks": "21000", **SINCE},
            {**gauges, **largest, "covered_blocks": "0", "store_only": "false", "at_least": "false"},
        )
        yield Family(
            "flow",
            2 * self.replicas,
            {**source, **media, **SINCE},
            {**dict.fromkeys(FAMILIES["flow"].summed, f"noise * {times}"), "lifetime_hist": HISTOGRAM},
        )
        yield Family(
            "stream_health",
            self.replicas,
            {**source, "incarnation": "1", "connected": "true", "drift_blocks": "0", **SINCE},
            {
                **dict.fromkeys(FAMILIES["stream_health"].summed, f"if(noise < 2, 1, 0) * {times}"),
                "last_seq": "toInt64(at)",
                "last_batch_at": "toDateTime64(window, 3, 'UTC')",
                "lag_seconds": "noise / 1000",
                "drift_since": "NULL",
            },
        )
        fills = {
            f"{cause}_{unit}": f"noise * {times * many * (16 if unit == 'tokens' else 1)}"
            for cause, many in {"filled": len(CAUSES), **dict.fromkeys(CAUSES, 1)}.items()
            for unit in ("blocks", "tokens")
        }
        of_domain = {**source, **domain, "group_idx": "0", "sampled_one_in": "1", **TRUST}
        yield Family("fills", self.replicas, of_domain, {**fills, "regret_hist": HISTOGRAM}, sharded=True)
        yield Family("capacity_curve", self.replicas, of_domain, {"needed_hist": HISTOGRAM}, sharded=True)
        owners = {f"owners_{name}": "noise" for name in ("1", "2", "3", "4_7", "8_up")}
        yield Family(
            "redundancy",
            2 * self.models,
            {
                "model": self._model,
                **domain,
                "medium": f"if(member < {self.models}, 'gpu', 'cpu')",
                "group_idx": "0",
                "sampled_one_in": "1",
                **TRUST,
            },
            {**owners, "unique_tokens": "noise", "physical_tokens": "2 * noise"},
            sharded=True,
        )
        yield self._hot_prefixes(seconds)

    def _hot_prefixes(self, seconds: int) -> Family:
        """Half of the prefixes are always the same, the others come and go."""
        space = {"model": self._model, "hash_domain": "concat('domain-', model)", "group_idx": "0"}
        figures = {
            "depth_blocks": "1 + noise",
            "owners": "1 + noise % 8",
            "shared_tokens": "16 * noise",
            "duplicated_tokens": "64 * noise",
            "refilled_tokens": "16 * (1 + noise)",
            "refilled_tokens_missing": "0",
            "sampled_one_in": "1",
            "trust": "'complete'",
        }
        if seconds == 10:
            place = f"intDiv(member, {self.models})"
            prefix = f"cityHash64(model, if({place} % 2 = 0, {place}, 1000 + (31 * at + 17 * {place}) % 500))"
            figures |= {"prefix": prefix, "lora": "''"}
            return Family("hot_prefixes", self.models * self.prefixes, space, figures, sharded=True)
        lists = {name: f"arrayMap(i -> {figure}, range({LISTED}))" for name, figure in figures.items()}
        lists |= {
            "prefix": f"arrayMap(i -> cityHash64(model, i), range({LISTED}))",
            "lora": f"arrayMap(i -> '', range({LISTED}))",
        }
        lists = {name: expression.replace("noise", "(noise + i) % 100") for name, expression in lists.items()}
        return Family("hot_prefixes", self.models, space, lists)

    def _write_counters(self, client: Client, seconds: int, windows: str) -> None:
        """Write what engines say of themselves; a minute and an hour have the first and the last scrape."""
        family = Family("engine_counters", self.replicas, self._source(), {})
        if seconds == 10:
            columns = {
                **self._source(),
                "time": "toDateTime64(window, 3, 'UTC')",
                "prefix_cache_queries": "1000 * at",
                "prefix_cache_hits": "700 * at",
                "capacity_blocks": "21000",
                "block_size": "16",
                "kv_cache_usage": "0.9",
                "version": "1",
            }
            _insert(client, "engine_counters", seconds, windows, family, columns, window=False)
            return
        columns = self._source()
        for name, number in (("first", "at * {0}"), ("last", "(at * {0} + {0} - 1)")):
            scrape = number.format(seconds // 10)
            time = f"toDateTime64(10 * {scrape}, 3, 'UTC')"
            columns[name] = (
                f"({time}, toInt64(1000 * {scrape}), toInt64(700 * {scrape}), NULL, NULL, NULL, NULL)"
            )
        table = "engine_counters_by_minute" if seconds == 60 else "engine_counters_by_hour"
        _insert(client, table, seconds, windows, family, columns)
        if seconds == 3600:
            for name, number in (("first", "at * 360"), ("last", "(at * 360 + 359)")):
                time = f"toDateTime64(10 * {number}, 3, 'UTC')"
                columns[name] = f"({time}, toInt64(300 * {number}), toFloat64(2 * {number}))"
            _insert(client, "prefill_counters_by_hour", seconds, windows, family, columns)

    def _source(self) -> dict[str, str]:
        number = f"leftPad(toString(member % {self.replicas}), 4, '0')"
        return {"model": self._model, "replica": f"concat('replica-', {number})", "dp_rank": "0"}

    @property
    def _model(self) -> str:
        return f"concat('model-', toString(member % {self.models}))"


def _insert(
    client: Client,
    table: str,
    seconds: int,
    windows: str,
    family: Family,
    columns: dict[str, str],
    shards: int = 1,
    *,
    window: bool = True,
) -> None:
    """Write a row of every member, and shard, for every window."""
    who = ", ".join(f"{_short(expression)} AS {name}" for name, expression in family.who.items())
    values = {"window": "window"} if window else {}
    values |= {name: name if name in family.who else sql for name, sql in columns.items()}
    client.command(
        f"INSERT INTO {table} ({', '.join(values)})"
        f" SELECT {', '.join(values.values())}"
        f" FROM (SELECT *, toDateTime({seconds} * at, 'UTC') AS window, {NOISE} AS noise FROM {windows}"
        f" CROSS JOIN (SELECT {who}, member, shard FROM (SELECT intDiv(number, {shards}) AS member,"
        f" number % {shards} AS shard FROM numbers({family.members * shards}))) AS members)",
        settings=QUICKLY,
    )


def _short(expression: str) -> str:
    """Return a column of few texts as numbers of them, which are copied faster."""
    return f"toLowCardinality({expression})" if "concat" in expression else expression
