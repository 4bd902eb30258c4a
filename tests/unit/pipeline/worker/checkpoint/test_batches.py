"""Records of a transaction, packed into batches."""

from __future__ import annotations

from typing import Any

from aiokafka.record.default_records import DefaultRecordBatch

from pipeline.worker.checkpoint.batches import BATCH_BYTES, batches
from pipeline.worker.checkpoint.record import Record
from schemas.settings import Kafka

RESIDENCY = "kvlens.residency.v1"


def record(partition: int, value: bytes, topic: str = RESIDENCY) -> Record:
    return Record(topic, partition, b"k", value, compressed=True, headers=[("h", b"v")])


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
        assert topic == RESIDENCY
        read_back = read(builder)
        assert {tuple(one.headers) for one in read_back} == {(("h", b"v"),)}
        found.setdefault(partition, []).append([one.value for one in read_back])
    assert found == {0: [[b"a", large], [large, b"c"]], 1: [[b"b", b"d"]]}


def test_a_record_larger_than_a_batch_has_one_of_its_own() -> None:
    larger = b"x" * (2 * BATCH_BYTES)
    sent = [record(0, b"a"), record(0, larger), record(0, b"c")]
    made = [read(builder) for _, builder in batches(sent, Kafka(compression="none"), transactional=False)]
    assert [[one.value for one in batch] for batch in made] == [[b"a"], [larger], [b"c"]]


def test_figures_are_compressed_with_what_every_client_reads() -> None:
    sent = [record(0, b"a" * 1000), record(0, b"a" * 1000, "kvlens.figures.v1")]
    kinds = {}
    for (topic, _), builder in batches(sent, Kafka(), transactional=True):
        builder.close()
        kinds[topic] = DefaultRecordBatch(bytes(builder._build())).compression_type
    assert kinds == {
        RESIDENCY: DefaultRecordBatch.CODEC_ZSTD,
        "kvlens.figures.v1": DefaultRecordBatch.CODEC_GZIP,
    }
