"""TensorRT-LLM, Mooncake's master, llm-d's storage backend, ROCm ATOM: payloads written after their code."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from connectors.engines.catalogue import CATALOGUE
from connectors.frames.bundle import Frames
from connectors.normalise.forwarding import NOTHING_FORWARDED
from connectors.normalise.hashes import object_hash, tenant_group
from connectors.normalise.normaliser import Normaliser
from connectors.normalise.scan import scan_single
from connectors.order.sequence import StoredPosition
from connectors.order.stream import SourceStream
from connectors.sources import Source
from pipeline.residency.partition import PartitionState
from pipeline.simulator.engine import events as simulator
from pipeline.simulator.wire.encoding import encoded_batch
from pipeline.simulator.wire.eras import ERAS
from schemas.events import Batch, Cleared, EventsRecord, Gap, Opened, Removed, Stored, Undecodable
from schemas.rows import OccupancyRow, SourceRow
from schemas.settings import Connector, Worker
from tests.support.inputs.event_records import events_in
from tests.support.inputs.packed import packed
from tests.support.replica_agent import ReplicaAgent, rows_of

NOW = 1_800_000_000.0
SOURCE = Source("r", 0, "m", "default", "m/x/default", "tcp://127.0.0.1:5557")
BIG = 2**63 + 5

encode = msgspec.msgpack.encode


def read(*events: Any, ts: float = NOW) -> tuple[Batch, Normaliser]:
    normaliser = Normaliser(max_frame_bytes=1 << 20)
    return normaliser.normalise(encode([ts, events, 0]), seq=1, received_at=NOW), normaliser


def engine_of(*events: Any) -> str:
    return read(*events)[1].era.engine


def trust_of(records: list[EventsRecord]) -> tuple[str, list[str]]:
    """Return what `sources` says of the stream: trust and remarks."""
    agent = ReplicaAgent()
    agent.apply(*records)
    [row] = rows_of(agent.cut(NOW), SourceRow)
    return row.trust, row.remarks


# TensorRT-LLM

TRT_STORED = {
    "type": "BlockStored",
    "block_hashes": [BIG, 7],
    "parent_block_hash": None,
    "token_ids": [1, "2", 3],
    "block_size": 32,
    "lora_id": None,
    "medium": "GPU",
    "lora_name": None,
}


def test_tensorrt_llm_is_told_by_its_marks() -> None:
    small = {**TRT_STORED, "block_hashes": [7]}
    key = {"type": "mm_key", "hash": "ab" * 32, "start_offset": 3}
    assert engine_of(TRT_STORED) == "trtllm"
    assert engine_of(small) == ""
    assert engine_of({**small, "mm_keys": [[]]}) == engine_of({**small, "mm_keys": [[key]]}) == "trtllm"
    assert engine_of({**TRT_STORED, "group_idx": 0, "kv_cache_spec_kind": "full_attention"}) == "vllm"
    assert engine_of({**TRT_STORED, "block_hashes": [-5]}) == "sglang"
    removed = {"type": "BlockRemoved", "block_hashes": [BIG, 7], "medium": "GPU"}
    assert engine_of(TRT_STORED, removed) == engine_of(removed, TRT_STORED) == "trtllm"


def test_a_publisher_is_not_told_by_what_it_leaves_out() -> None:
    """The maps of llm-d-inference-sim have neither groups nor, without adapters, their names."""
    simulated = {key: value for key, value in TRT_STORED.items() if not key.startswith("lora")}
    adapter = {**simulated, "lora_id": 1, "lora_name": "sql"}
    removed = {"type": "BlockRemoved", "block_hashes": [BIG, 7], "medium": "GPU"}
    assert engine_of(simulated, adapter, removed) == ""


def test_nothing_of_multimodal_keys_is_kept() -> None:
    batch, normaliser = read({**TRT_STORED, "mm_keys": [[{"type": "mm_key", "hash": "ab" * 32}]]})
    assert batch.events == [Stored(packed(BIG, 7), 32, 64)]
    assert normaliser.era.wire_era == "trtllm-map"


def test_its_simulated_era_is_read_as_it_is_meant() -> None:
    digests = (b"\xff" * 32, b"\x81" * 32)
    stored = simulator.Stored(digests, None, tuple(range(64)), 32)
    payload = encoded_batch(ERAS["trtllm-1.3"], NOW, [stored, simulator.Removed(digests)], rank=9)
    normaliser = Normaliser(max_frame_bytes=1 << 20)
    batch = normaliser.normalise(payload, seq=0, received_at=NOW)
    assert [type(event) for event in batch.events] == [Stored, Removed]
    assert (normaliser.era.engine, normaliser.rank) == ("trtllm", 9)
    single = scan_single(payload, 0, NOW, NOTHING_FORWARDED)
    assert single is not None
    assert (single.batch, single.rank) == (batch, 9)


def test_a_batch_that_its_full_queue_dropped_is_a_gap() -> None:
    payload = encode([NOW, [TRT_STORED], 0])
    stream = SourceStream(SOURCE, Connector(), lambda: NOW)
    messages: list[Frames] = [(b"", packed(seq), payload) for seq in (0, 1, 4)]
    records = [*stream.feed_all(messages, NOW), *stream.flush()]
    notices = events_in(records)
    assert Gap(2, 3, "replay_not_configured") in notices
    assert trust_of(records) == ("degraded", [])


# Mooncake


def mooncake(kind: str, legacy: str | None, **fields: Any) -> dict[str, Any]:
    event = {
        "event_id": 3,
        "timestamp": 1_800_000_000_123,
        "event_type": kind,
        "type": legacy,
        "model_name": None,
        "block_size": None,
        "additional_salt": None,
        "lora_name": None,
        "tenant_id": "default",
        "backend_id": "mooncake-0",
        "medium": "cpu",
        "dp_rank": 0,
        "group_id": None,
        "object_key": "qwen@0@5f3c",
        "seq_hashes": [],
        "block_hashes": [],
        "base_block_idx": None,
        **fields,
    }
    return {key: value for key, value in event.items() if key != "type" or value is not None}


@pytest.mark.parametrize("legacy", [False, True], ids=["event_type", "type"])
def test_mooncakes_objects_are_told_by_their_keys(legacy: bool) -> None:
    def named(name: str) -> str | None:
        return name if legacy else None

    batch, normaliser = read(
        mooncake("stored", named("BlockStored")),
        mooncake("stored", named("BlockStored"), block_size=16, medium="disk", tenant_id="acme"),
        mooncake("removed", named("BlockRemoved")),
        mooncake("cleared", named("AllBlocksCleared"), medium=None),
        ts=1_800_000_000_123,
    )
    key, acme = object_hash("qwen@0@5f3c"), tenant_group("acme")
    assert batch.ts == 1_800_000_000.123
    assert batch.events == [
        Stored(key, 0, medium="cpu", raw_medium="cpu", store_only=True),
        Stored(key, 16, 16, medium="disk", raw_medium="disk", group_idx=acme, store_only=True),
        Removed(key, "cpu", "cpu"),
        Cleared("", 0),
    ]
    assert normaliser.era.engine == "mooncake"
    assert b"qwen@0" not in encode(batch)


def test_tenants_are_groups_and_the_default_one_is_the_first() -> None:
    groups = {tenant_group(name) for name in ("default", "acme", "other", "")}
    assert tenant_group("default") == 0
    assert len(groups) == 4
    assert all(0 <= group < 2**16 for group in groups)


def test_a_clear_of_a_tenant_leaves_the_others() -> None:
    state = PartitionState(0, Worker(), shards=1)
    stored = [Stored(packed(1), 0, medium="cpu"), Stored(packed(2), 0, medium="cpu", group_idx=7)]
    batches = [
        Batch(None, NOW, NOW, [Opened(1, complete=False)]),
        Batch(1, NOW, NOW, [*stored, Stored(packed(3), 0, medium="disk"), Cleared("", 0)]),
    ]
    state.apply(0, EventsRecord("r", "m", "d", 0, 1, batches))
    rows = [row for row in state.cut(NOW).rows if isinstance(row, OccupancyRow)]
    blocks = {(row.medium, row.group_idx): (row.blocks, row.trust) for row in rows}
    assert blocks == {("cpu", 0): (0, "partial"), ("cpu", 7): (1, "partial"), ("disk", 0): (0, "partial")}


def test_stores_without_identity_are_refused_by_name_and_never_complete() -> None:
    nameless = mooncake("stored", "BlockStored", object_key=None)
    assert read(nameless)[0].events == [Undecodable("no_identity", 1)]
    stream = SourceStream(SOURCE, Connector(), lambda: NOW)
    cleared = {"type": "AllBlocksCleared"}
    messages: list[Frames] = [
        (b"", packed(seq), encode([NOW, events, 0])) for seq, events in enumerate([[nameless], [cleared]])
    ]
    records = [*stream.feed_all(messages, NOW), *stream.flush()]
    assert stream.counts.undecodable == {"no_identity": 1}
    assert trust_of(records) == ("degraded", ["no_identity"])


# llm-d


def test_events_inside_bins_are_unpacked() -> None:
    inside = encode(["BlockStored", [BIG, 7], 0, [], 0, None, "SHARED_STORAGE"])
    batch, normaliser = read(inside, encode({"type": "BlockRemoved", "block_hashes": [1]}))
    assert batch.events == [
        Stored(packed(BIG, 7), 0, 0, bytes(8), "storage", "SHARED_STORAGE", store_only=True),
        Removed(packed(1)),
    ]
    assert normaliser.era.engine == "llm-d"
    for odd in (b"", b"\xc1", encode(inside), inside + b"\0", encode(7), b"\x91" * 2000):
        assert read(odd)[0].events == [Undecodable("missing_type", 1)]


# ATOM


def atom(*events: Any, topic: bool) -> Frames:
    payload = encode([NOW, events])
    return [b"kv", payload] if topic else [payload]


@pytest.mark.parametrize("topic", [False, True])
def test_messages_without_a_number_are_read_and_never_complete(topic: bool) -> None:
    stream = SourceStream(SOURCE, Connector(), lambda: NOW)
    stored = ["BlockStored", [BIG], None, [], 16, None, "GPU", None, None, 0, None, None]
    messages = [atom(stored, topic=topic), atom(["AllBlocksCleared", "GPU"], stored, topic=topic)]
    records = [*stream.feed_all(messages, NOW), *stream.flush()]
    batches = [batch for record in records for batch in record.batches]
    assert [batch.seq for batch in batches] == [None, 1, 2]
    assert batches[0].events == [Opened(1, False, SOURCE.endpoint)]
    assert batches[2].events == [Cleared("gpu"), Stored(packed(BIG), 16, 16)]
    assert {record.engine for record in records} == {"atom"}
    assert trust_of(records) == ("partial", ["no_sequence"])


def test_odd_messages_of_a_publisher_that_numbers_are_refused() -> None:
    stream = SourceStream(SOURCE, Connector(), lambda: NOW)
    odd = atom(["AllBlocksCleared"], topic=False)
    stream.feed_all([(b"", packed(0), encode([NOW, [TRT_STORED], 0])), odd, [b"what"]], NOW)
    assert stream.counts.undecodable == {"frame_count": 2}
    stream = SourceStream(SOURCE, Connector(), lambda: NOW)
    stream.feed_all([[b"what"], [b"", b"\x93"], odd], NOW)
    assert stream.counts.undecodable == {"frame_count": 2}
    assert stream.counts.batches == 1


def test_every_engine_has_a_name_of_its_own() -> None:
    names = [engine.name for engine in CATALOGUE.engines]
    assert len({*names}) == len(names)


def test_what_came_while_no_connector_was_there_is_a_loss() -> None:
    resume = StoredPosition(incarnation=7, seq=10, fingerprint=0, closed=False)
    stream = SourceStream(SOURCE, Connector(), lambda: NOW, resume=resume)
    messages = [atom(["BlockRemoved", [n], "GPU"], topic=False) for n in range(2)]
    records = [*stream.feed_all(messages, NOW), *stream.flush()]
    batches = [batch for record in records for batch in record.batches]
    assert [batch.seq for batch in batches] == [None, 12, 13]
    assert batches[0].events == [Gap(11, 11, "replay_not_configured")]
