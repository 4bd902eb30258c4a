"""The hash of a key is that of Kafka's clients."""

from __future__ import annotations

import aiokafka.partitioner
import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.kafka.topics import murmur2, partition_of, partition_of_key
from tests.support.client_partition import client_partition


@pytest.mark.parametrize(
    ("key", "signed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_vectors_of_kafka(key: bytes, signed: int) -> None:
    """As `testMurmur2` in UtilsTest of Apache Kafka has them."""
    assert murmur2(key) == signed & 0xFFFFFFFF


@given(st.binary(max_size=70))
def test_hash_is_that_of_another_client(key: bytes) -> None:
    assert murmur2(key) == aiokafka.partitioner.murmur2(key)


@given(st.text(max_size=40), st.integers(1, 1000))
def test_partition_is_where_a_client_would_send_the_record(key: str, partitions: int) -> None:
    assert partition_of(key, partitions) == client_partition(key, partitions)
    assert partition_of_key(key.encode(), partitions) == client_partition(key, partitions)
