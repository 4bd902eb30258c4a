"""Chunks of fetched records: bounded, whole, and in the order of the log."""

from __future__ import annotations

from types import SimpleNamespace

from faust.types import TP
from hypothesis import given
from hypothesis import strategies as st

from pipeline.worker.consumer.fetched import CHUNK_RECORDS, Chunk, FetchedRecord, in_turns

CHUNK_BYTES = 1 << 10
LARGE = 1 << 30


def record(offset: int, size: int | None) -> FetchedRecord:
    value = None if size is None else bytes(size)
    return SimpleNamespace(
        offset=offset,
        key=None,
        value=value,
        headers=(("content-type", b"x"),),
        timestamp=1500,
        timestamp_type=0,
    )


SIZES = st.lists(st.none() | st.sampled_from([0, 100, CHUNK_BYTES // 2, 2 * CHUNK_BYTES]), max_size=200)


@given(st.lists(SIZES, max_size=4))
def test_every_record_is_in_one_chunk_in_its_order(sizes: list[list[int | None]]) -> None:
    fetched = {
        TP("events", number): [record(10 + at, size) for at, size in enumerate(each)]
        for number, each in enumerate(sizes)
    }
    chunks = [*in_turns(fetched, CHUNK_BYTES)]
    for topic_partition, records in fetched.items():
        own = [chunk for place, chunk in chunks if place == topic_partition]
        assert [one for chunk in own for one in chunk] == records
        for chunk in own:
            assert 1 <= len(chunk) <= CHUNK_RECORDS
            assert sum(len(one.value or b"") for one in chunk[:-1]) < CHUNK_BYTES


def test_small_records_fill_chunks() -> None:
    records = [record(offset, 500) for offset in range(3 * CHUNK_RECORDS + 1)]
    chunks = in_turns({TP("events", 0): records}, LARGE)
    assert [len(chunk) for _, chunk in chunks] == [CHUNK_RECORDS] * 3 + [1]


def test_partitions_take_turns() -> None:
    long, short = [record(offset, 1) for offset in range(3 * CHUNK_RECORDS)], [record(0, 1)]
    turns = [place.partition for place, _ in in_turns({TP("events", 0): long, TP("events", 1): short}, LARGE)]
    assert turns == [0, 1, 0, 0]


def test_a_chunk_is_a_message_at_its_first_offset() -> None:
    records = [record(7, 1), record(8, 1)]
    chunk = Chunk(TP("events", 3), records, generation_id=5)
    assert (chunk.topic, chunk.partition, chunk.offset, chunk.timestamp) == ("events", 3, 7, 1.5)
    assert (chunk.generation_id, chunk.value, chunk.records) == (5, None, records)
