"""Verify's SQL picks the rows of a partition as connectors choose it."""

from __future__ import annotations

from clickhouse_connect.driver.client import Client

from connectors.kafka.topics import partition_of

KEYS = ["", *("räplica-0123456789"[:length] for length in range(1, 19)), *(f"vllm-{n}" for n in range(50))]


def test_partition_in_sql_is_that_of_the_connectors(store_client: Client) -> None:
    for partitions in (1, 8, 12):
        answer = store_client.query(
            "SELECT kafkaMurmurHash(arrayJoin({keys:Array(String)})) % {of:UInt32}",
            parameters={"keys": KEYS, "of": partitions},
        )
        assert [row[0] for row in answer.result_rows] == [partition_of(key, partitions) for key in KEYS]
