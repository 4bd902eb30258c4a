"""Views that read a range and the one before it together have what views of one range have of each."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from itertools import product
from typing import Any

import clickhouse_connect
import pytest
from clickhouse_connect.driver.client import Client

from tests.support.inputs.board_rows import HOUR, hour_of_rows, write_rows
from tests.support.inputs.empty_tables import EmptyTables

OF_BOTH = (
    "before = {before:DateTime('UTC')}, from = {from:DateTime('UTC')}, to = {to:DateTime('UTC')},"
    " seconds = {seconds:UInt32}, seconds_before = {seconds_before:UInt32}"
)
OF_ONE = "from = {from:DateTime('UTC')}, to = {to:DateTime('UTC')}"
CAUSES = ("peer", "peer_and_evicted", "evicted", "evicted_elsewhere", "cleared", "cold", "unknown")
SUMS = ("filled", "prefill", "transferred", *CAUSES)
FILLS = (
    f"SELECT hash_domain, model, replica, group_idx, last, {', '.join(SUMS)}, one_in, toString(worst)"
    f" FROM fills_of_both_in_utc({OF_BOTH}) WHERE earlier = {{earlier:UInt8}} ORDER BY ALL",
    "SELECT * FROM (SELECT hash_domain, model, replica, group_idx, max(window),"
    f" {', '.join(f'sum({name}_tokens) AS {name}' for name in SUMS)},"
    " max(sampled_one_in), toString(max(trust))"
    f" FROM fills_windows_in_utc({OF_ONE}, step = 10, seconds = {{seconds:UInt32}})"
    " GROUP BY hash_domain, model, replica, group_idx"
    " ORDER BY filled DESC, group_idx LIMIT 1 BY hash_domain, model, replica) ORDER BY ALL",
)
HITS = (
    "SELECT model, replica, queried, hit, computed, transferred, counted_seconds"
    f" FROM engine_hits_of_both_in_utc({OF_BOTH})"
    " WHERE earlier = {earlier:UInt8} ORDER BY ALL",
    "SELECT model, replica, sum(queried), sum(hit), sum(computed), sum(transferred),"
    " sum(counted_seconds) / uniqExact(dp_rank)"
    f" FROM engine_hits_windows_in_utc({OF_ONE}, seconds = {{seconds:UInt32}})"
    " GROUP BY model, replica ORDER BY ALL",
)
STREAMS = (
    "SELECT model, replica, dp_rank, toString(trust), if(earlier, NULL, (toUInt8(exact), window, end))"
    f" FROM latest_of_both_in_utc({OF_BOTH}) WHERE earlier = {{earlier:UInt8}} ORDER BY ALL",
    "SELECT model, replica, dp_rank, toString(trust), (toUInt8(exact), window, end)"
    f" FROM latest_streams({OF_ONE}, seconds = {{seconds:UInt32}}) ORDER BY ALL",
)
EARLIER_STREAMS = (
    "SELECT model, replica, dp_rank, toString(argMax(trust, window)), NULL"
    f" FROM stream_health_windows_in_utc({OF_ONE}, step = 10, seconds = {{seconds:UInt32}})"
    " GROUP BY model, replica, dp_rank ORDER BY ALL"
)
RANGES = ((1800, 3599), (1807, 2603), (3333, 3599), (2700, 3599))
LENGTHS = tuple(product((10, 60, 3600), repeat=2))
LENGTHS_BY_DAY = ((10, 60),)


@pytest.fixture(scope="module")
def client(empty_tables: EmptyTables) -> Iterator[Client]:
    with empty_tables.lent() as settings:
        write_rows(settings, hour_of_rows())
        store = settings.clickhouse
        client = clickhouse_connect.get_client(dsn=store.url, database=store.database)
        # An engine is not scraped for four minutes, so a range begins without a scrape of the minute before.
        for table, at in (("engine_counters", "time"), ("engine_counters_by_minute", "window")):
            client.command(
                f"ALTER TABLE {table} DELETE WHERE toMinute({at}) BETWEEN 27 AND 30 "
                "SETTINGS mutations_sync = 2"
            )
        yield client
        client.close()


@pytest.mark.parametrize(
    ("begin", "end"),
    [RANGES[1], *(pytest.param(*each, marks=pytest.mark.night) for each in RANGES if each != RANGES[1])],
)
@pytest.mark.parametrize(
    ("seconds", "seconds_before"),
    [each if each in LENGTHS_BY_DAY else pytest.param(*each, marks=pytest.mark.night) for each in LENGTHS],
)
def test_each_range_is_read_as_by_itself(
    client: Client, begin: int, end: int, seconds: int, seconds_before: int
) -> None:
    since, until = HOUR + timedelta(seconds=begin), HOUR + timedelta(seconds=end)
    before = since - (until - since) - timedelta(seconds=1)
    both: dict[str, Any] = {
        "before": before, "from": since, "to": until,
        "seconds": seconds, "seconds_before": seconds_before,
    }  # fmt: skip
    now = {"from": since, "to": until, "seconds": seconds}
    past = {"from": before, "to": since - timedelta(seconds=1), "seconds": seconds_before}
    for (together, alone), earlier_alone in ((FILLS, FILLS[1]), (HITS, HITS[1]), (STREAMS, EARLIER_STREAMS)):
        rows = client.query(alone, parameters=now).result_rows
        assert rows
        assert client.query(together, parameters={**both, "earlier": 0}).result_rows == rows
        rows = client.query(earlier_alone, parameters=past).result_rows
        assert rows
        assert client.query(together, parameters={**both, "earlier": 1}).result_rows == rows
