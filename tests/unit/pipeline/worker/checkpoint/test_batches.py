"""Records of a transaction, packed into batches."""

from __future__ import annotations

from typing import Any

from aiokafka.record.default_records import DefaultRecordBatch

from pipeline.worker.checkpoint.batches import BATCH_BYTES, batches
from pipeline.worker.checkpoint.record import Record
from schemas.settings import Kafka


def record(partition: int, value: bytes) -> Record:
    return Record("t", partition, b"k", value, compressed=True, headers=[("h", b"v")])


def read(builder: Any) -> list[Any]:
    builder.close()
    buffer = builder._build()
    return [*DefaultRecordBatch(bytes(buffer))]


def test_records_of_a_partition_share_batches_in_their_order() -> None:
    large = b"x" * (BATCH_BYTES // 2)
    sent = [
        record(0, b"a"),
        record(1, b"b"),
        record(0, large),
        record(0, large),
        record(0, b"c"),
        record(1, b"d"),
    ]
    found: dict[int, list[list[bytes]]] = {}
    for (topic, partition), builder in batches(sent, Kafka(compression="none"), transactional=True):
        assert topic == "t"
        read_back = read(builder)
        assert {tuple(one.headers) for one in read_back} == {(("h", b"v"),)}
        found.setdefault(partition, []).append([one.value for one in read_back])
    assert found == {0: [[b"a", large], [large, b"c"]], 1: [[b"b", b"d"]]}


def test_a_record_larger_than_a_batch_has_one_of_its_own() -> None:
    larger = b"x" * (2 * BATCH_BYTES)
    sent = [record(0, b"a"), record(0, larger), record(0, b"c")]
    made = [read(builder) for _, builder in batches(sent, Kafka(compression="none"), transactional=False)]
    assert [[one.value for one in batch] for batch in made] == [[b"a"], [larger], [b"c"]]
