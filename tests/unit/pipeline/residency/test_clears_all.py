"""HiCache: SGLang's flush empties GPU and host with one clear that names neither, vLLM's the GPU."""

from __future__ import annotations

import random
from typing import Any, Literal

import msgspec
import pytest

from connectors.order.sequence import StoredPosition
from connectors.order.stream import SourceStream
from connectors.sources import Source
from pipeline.verify.replica.source import SourceRecount
from schemas.events import EventsRecord
from schemas.settings import Connector, Worker
from tests.support.following_index import FollowingIndex
from tests.support.inputs.captures import TIERS, captured_frames, captured_truth
from tests.support.replica_agent import ReplicaAgent, held_in

NOW = 1_800_000_000.0
PAGE = 64
HOST = {"sglang": "CPU_PINNED", "vllm": "CPU"}
SOURCE = Source("r", 0, "m", "default", "m/default", "tcp://127.0.0.1:1")
Name = Literal["sglang", "vllm"]


class Engine:
    """Stores pages, copies some of them to the host, lets pages go on either, and flushes at times."""

    def __init__(self, name: Name, seed: int, *, maps: bool) -> None:
        self.name, self.maps = name, maps
        self.rng = random.Random(seed)
        negative = name == "sglang"
        self.pages = [self.rng.getrandbits(63) - (negative << 63) for _ in range(60)]
        self.held: dict[str, set[int]] = {"gpu": set(), "cpu": set()}
        self.flushed = 0
        """Pages on the host that flushes dropped, or would have, were the engine SGLang."""

    def payload(self, seq: int, *, flush: bool = False) -> bytes:
        kinds = [self._flush] if flush else self.rng.choices([self._store, self._remove], [2, 1], k=3)
        if not flush and self.rng.random() < 0.05:
            kinds.insert(self.rng.randrange(3), self._flush)
        events = [event for kind in kinds if (event := kind()) is not None]
        return msgspec.msgpack.encode([NOW + seq / 100, events, 0])

    def _store(self) -> Any:
        medium = self.rng.choice(["gpu", "gpu", "cpu"])
        # Only what the GPU has is copied, and neither tree has a page twice on one tier.
        among = self.held["gpu"] if medium == "cpu" else {*self.pages}
        new = sorted(among - self.held[medium])
        if not new:
            return None
        pages = self.rng.sample(new, min(len(new), self.rng.randint(1, 4)))
        self.held[medium].update(pages)
        fields: dict[str, Any] = {
            "block_hashes": pages,
            "parent_block_hash": None,
            "token_ids": [7] * PAGE * len(pages),
            "block_size": PAGE,
            "lora_id": None,
            "medium": self._spelled(medium),
        }
        if self.name == "vllm":
            fields |= {"lora_name": None, "extra_keys": None, "group_idx": 0}
        return self._encoded("BlockStored", fields)

    def _remove(self) -> Any:
        medium = self.rng.choice([*self.held])
        held = self.held[medium]
        if not held:
            return None
        pages = self.rng.sample(sorted(held), min(len(held), self.rng.randint(1, 3)))
        held.difference_update(pages)
        fields: dict[str, Any] = {"block_hashes": pages, "medium": self._spelled(medium)}
        if self.name == "vllm":
            fields["group_idx"] = 0
        return self._encoded("BlockRemoved", fields)

    def _flush(self) -> Any:
        self.flushed += len(self.held["cpu"])
        self.held["gpu"].clear()
        if self.name == "sglang":
            self.held["cpu"].clear()
        return self._encoded("AllBlocksCleared", {})

    def _spelled(self, medium: str) -> str:
        return "GPU" if medium == "gpu" else HOST[self.name]

    def _encoded(self, kind: str, fields: dict[str, Any]) -> Any:
        return {"type": kind, **fields} if self.maps else [kind, *fields.values()]


class Readers:
    """A connector, and behind it a worker, a recount and an index of what it writes."""

    def __init__(self, settings: Worker) -> None:
        self.stream = SourceStream(SOURCE, Connector(), clock=lambda: NOW)
        self.worker = ReplicaAgent(settings)
        self.recount = SourceRecount("r", 0, settings)
        self.index = FollowingIndex(settings)

    @property
    def log(self) -> list[EventsRecord]:
        return self.worker.log

    def hear(self, seq: int, payload: bytes) -> None:
        frames = [b"", seq.to_bytes(8, "big"), payload]
        for record in [*self.stream.feed(frames, NOW + seq / 100), *self.stream.flush()]:
            for each in (self.recount, self.index.partition):
                each.apply(len(self.log), record)
            self.worker.apply(record)

    def connector_restarts(self) -> None:
        last = self.log[-1]
        resume = StoredPosition(last.incarnation, last.last_seq, last.last_fingerprint)
        self.stream = SourceStream(SOURCE, Connector(), clock=lambda: NOW, resume=resume)

    def worker_restarts(self) -> None:
        self.worker.moved(NOW)
        self.index = FollowingIndex(self.worker.settings, self.worker.latest)

    def in_worker(self) -> dict[str, set[int]]:
        held = {medium: held_in(self.worker.source(), medium) for medium in ("gpu", "cpu")}
        assert {copies for blocks in held.values() for copies in blocks.values()} <= {1}
        return {medium: {*blocks} for medium, blocks in held.items()}

    def in_recount(self) -> dict[str, tuple[int, int]]:
        held = {"gpu": (0, 0), "cpu": (0, 0)}
        return held | {medium: (one.entries, one.blocks) for medium, _, one in self.recount.held(NOW)}

    def in_index(self, block: int) -> tuple[int, int]:
        """Tokens of a prompt of this block alone, on GPU and CPU."""
        told = self.index.ask(block, at=NOW).get("r")
        return (told.ranks["0"].gpu, told.ranks["0"].cpu) if told else (0, 0)


@pytest.mark.parametrize("maps", [False, True], ids=["arrays", "maps"])
@pytest.mark.parametrize("name", ["sglang", "vllm"])
@pytest.mark.parametrize("seed", range(2))
def test_worker_recount_and_index_hold_what_the_engine_does(name: Name, maps: bool, seed: int) -> None:
    engine, readers = Engine(name, seed, maps=maps), Readers(Worker())
    for seq in range(200):
        readers.hear(seq, engine.payload(seq))
        if seq % 60 == 59:
            readers.worker_restarts()
        expected = {medium: {page % 2**64 for page in held} for medium, held in engine.held.items()}
        assert readers.in_worker() == expected
        assert readers.in_recount() == {medium: (len(held), len(held)) for medium, held in expected.items()}
        if seq % 10 == 9:
            for page in engine.pages:
                block = page % 2**64
                on_gpu, on_cpu = block in expected["gpu"], block in expected["cpu"]
                gpu, cpu = readers.in_index(block)
                assert (gpu > 0, gpu + cpu > 0) == (on_gpu, on_gpu or on_cpu)
    assert engine.flushed > 20
    assert readers.worker.source().overall_trust().trust == "complete"
    assert {record.clears_all for record in readers.log[10:]} == {name == "sglang"}


@pytest.mark.parametrize("restarts", [False, True], ids=["straight", "restarts"])
@pytest.mark.parametrize("name", TIERS)
def test_captured_tiers_equal_the_engines_own_at_every_batch(name: str, restarts: bool) -> None:
    truth, readers = captured_truth(name), Readers(Worker())
    checkpoints = {seq: (on_device, on_host) for seq, on_device, on_host in truth["checkpoints"]}
    frames = captured_frames(name)
    for seq, (_, number, payload) in enumerate(frames):
        assert int.from_bytes(number, "big") == seq
        readers.hear(seq, payload)
        held = readers.in_worker()
        assert (len(held["gpu"]), len(held["cpu"])) == checkpoints[seq]
        recounted = readers.in_recount()
        assert (recounted["gpu"], recounted["cpu"]) == tuple((pages, pages) for pages in checkpoints[seq])
        if restarts and seq % 40 == 39:
            readers.connector_restarts()
            readers.worker_restarts()
    assert len(frames) == len(checkpoints) == truth["received_batches"]
    expected = {
        "gpu": {page % 2**64 for page in truth["final_device"]},
        "cpu": {page % 2**64 for page in truth["final_host"]},
    }
    assert readers.in_worker() == expected
    for block in expected["gpu"] | expected["cpu"]:
        gpu, cpu = readers.in_index(block)
        assert (gpu > 0, max(gpu, cpu)) == (block in expected["gpu"], truth["page_size"])
    source = readers.worker.source()
    flows = readers.worker.flow()
    assert not any(flow.unknown_removed_blocks for flow in flows.values())
    assert source.overall_trust().trust == "complete"
    if not restarts:
        flushed = {
            "gpu": sum(reset["device_pages"] for reset in truth["resets"]),
            "cpu": sum(reset["host_pages"] for reset in truth["resets"]),
        }
        assert {medium: flow.cleared_blocks for (medium, _), flow in flows.items()} == flushed


def test_a_flush_that_a_new_connector_sees_first_is_read_as_the_engine_means_it() -> None:
    """It knows no engine yet; the log does."""
    engine, readers = Engine("sglang", 5, maps=True), Readers(Worker())
    for seq in range(20):
        readers.hear(seq, engine.payload(seq))
    assert engine.held["cpu"]
    readers.connector_restarts()
    readers.worker_restarts()
    readers.hear(20, engine.payload(20, flush=True))
    assert (readers.log[-1].engine, readers.log[-1].clears_all) == ("", None)
    assert readers.in_worker() == {"gpu": set(), "cpu": set()}
    assert readers.in_recount() == {"gpu": (0, 0), "cpu": (0, 0)}


def test_a_clear_of_all_makes_every_medium_complete_again() -> None:
    """Also where the setting is of the GPU alone, and a batch of unknown events had degraded the source."""
    engine, readers = Engine("sglang", 6, maps=True), Readers(Worker(clear_scope="gpu"))
    for seq in range(10):
        readers.hear(seq, engine.payload(seq))
    readers.hear(10, msgspec.msgpack.encode([NOW + 0.1, [{"type": "BlockPondered"}], 0]))
    source = readers.worker.source()
    assert source.overall_trust().trust == "degraded"
    readers.hear(11, engine.payload(11, flush=True))
    assert source.overall_trust().trust == "complete"
