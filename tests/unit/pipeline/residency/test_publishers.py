"""Bytes that other publishers' own code sent, through stream and residency, against what they held."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from connectors.normalise.hashes import object_hash, tenant_group
from connectors.order.stream import SourceStream
from connectors.sources import Source
from pipeline.verify.replica.source import SourceRecount
from schemas.events import EventsRecord, Removed
from schemas.hashes import unpack_hashes
from schemas.settings import Connector, Worker
from tests.support.inputs.captures import PUBLISHERS, captured_frames, captured_truth
from tests.support.inputs.event_records import events_in
from tests.support.replica_agent import ReplicaAgent, held_in

NOW = 1_795_418_000.0
"""After every capture."""
ERAS = {
    "atom-2026.08-array": ("atom", "array-12"),
    "llmd-2026.06-evictor": ("llm-d", ""),
    "llmd-2026.06-storage": ("llm-d", "llm-d-array-7"),
    "mooncake-0.3.14-map": ("mooncake", "mooncake-map"),
    "mooncake-0.3.14-map-tenants": ("mooncake", "mooncake-map"),
    "trtllm-1.3-map": ("trtllm", "trtllm-map"),
    "trtllm-1.3-map-mm": ("trtllm", "trtllm-map"),
}


class Played:
    """A capture's records, one for each message, applied one by one."""

    def __init__(self, name: str) -> None:
        self.truth: dict[str, Any] = captured_truth(name)
        self.stream = SourceStream(
            Source("r", 0, "m", "default", "m/x/default", "tcp://127.0.0.1:5557"), Connector(), lambda: NOW
        )
        self.agent = ReplicaAgent()
        self._frames = captured_frames(name)

    def messages(self) -> Iterator[int]:
        """Yield the number of each message once it is applied."""
        for number, frames in enumerate(self._frames):
            self.agent.apply(*self.stream.feed_all([frames], NOW), *self.stream.flush())
            yield number

    @property
    def records(self) -> list[EventsRecord]:
        return self.agent.log

    def all(self) -> Played:
        for _ in self.messages():
            pass
        return self

    def held(self, medium: str, group: int = 0) -> set[int]:
        """Return the resident blocks; each has one copy."""
        held = held_in(self.agent.source(), medium, group)
        assert {*held.values()} <= {1}
        return {*held}

    @property
    def trust(self) -> str:
        return self.agent.source().overall_trust().trust


@pytest.mark.parametrize("name", PUBLISHERS)
def test_engine_and_era_are_told_and_everything_is_understood(name: str) -> None:
    played = Played(name).all()
    assert (played.records[-1].engine, played.records[-1].wire_era) == ERAS[name]
    assert played.stream.counts.batches == len(captured_frames(name))
    assert not played.stream.counts.undecodable
    assert played.stream.counts.lost_batches == 0
    assert played.trust == ("complete" if name.startswith("trtllm") else "partial")


@pytest.mark.parametrize("name", [name for name in PUBLISHERS if not name.startswith(("llmd", "moon"))])
def test_gpu_blocks_are_the_publishers_after_every_message(name: str) -> None:
    played = Played(name)
    checkpoints = dict(played.truth["checkpoints"])
    for number in played.messages():
        assert len(played.held("gpu")) == checkpoints.pop(number)
    assert not checkpoints
    assert played.held("gpu") == set(played.truth["final_cached"])
    flow = played.agent.flow()["gpu", 0]
    assert flow.removed_blocks == played.truth["evicted"]
    assert flow.unknown_removed_blocks == 0


def test_atom_announces_a_block_again_and_removes_it_once() -> None:
    """Whoever counted a copy for each store would hold blocks for ever."""
    played = Played("atom-2026.08-array").all()
    flow = played.agent.flow()["gpu", 0]
    assert flow.reannounced_blocks > 50
    rows = {row.medium: row for row in played.agent.source().occupancy()}
    assert (rows["gpu"].entries, rows["gpu"].store_only) == (len(played.truth["final_cached"]), False)
    assert (rows["remote"].blocks, rows["remote"].store_only) == (len(played.truth["remote"]), True)


def test_llm_ds_storage_holds_a_file_for_each_block() -> None:
    played = Played("llmd-2026.06-storage")
    checkpoints = dict(played.truth["checkpoints"])
    for number in played.messages():
        assert len(played.held("storage")) == checkpoints[number]
    assert played.held("storage") == set(played.truth["final_cached"])
    [row] = played.agent.source().occupancy()
    assert row.store_only


def test_llm_ds_evictor_announces_what_left_on_a_socket_of_its_own() -> None:
    played = Played("llmd-2026.06-evictor").all()
    gone = [event for event in events_in(played.records) if isinstance(event, Removed)]
    hashes = {block for event in gone if event.medium == "storage" for block in unpack_hashes(event.hashes)}
    assert hashes == set(played.truth["removed"])


def test_mooncakes_rows_are_upper_bounds_whatever_is_removed() -> None:
    """It announces what clients remove, and nothing of what it evicts."""
    played = Played("mooncake-0.3.14-map")
    marks = set()
    for _ in played.messages():
        source = played.agent.source()
        removed = sum(flow.removed_blocks for flow in played.agent.flow().values())
        [row] = [row for row in source.occupancy() if row.medium == "cpu" and row.group_idx == 0]
        marks.add((row.store_only, bool(removed)))
    assert marks == {(True, False), (True, True)}


@pytest.mark.parametrize("name", ["mooncake-0.3.14-map", "mooncake-0.3.14-map-tenants"])
def test_mooncakes_objects_are_those_it_has_but_for_its_silent_evictions(name: str) -> None:
    played = Played(name)
    checkpoints = {number: (what, held) for number, what, held in played.truth["checkpoints"]}
    silent: set[str] = set()
    for number in played.messages():
        if number not in checkpoints:
            continue
        what, tenants = checkpoints[number]
        for tenant, keys in tenants.items():
            objects = {unpack_hashes(object_hash(key))[0] for key in keys}
            held = played.held("cpu", tenant_group(tenant))
            if what == "evicted" and held != objects:
                silent.add(tenant)
            if tenant in silent and not (what.startswith("tenant cleared") and not objects):
                assert held > objects, "what its eviction took is announced by nothing"
            else:
                silent.discard(tenant)
                assert held == objects, (what, tenant)
    assert set(checkpoints) <= set(range(number + 1))


@pytest.mark.parametrize("name", PUBLISHERS)
def test_the_recount_holds_the_same(name: str) -> None:
    played = Played(name).all()
    recount = SourceRecount("r", 0, Worker())
    repeated: Counter[tuple[str, int]] = Counter()

    def add(_window: int) -> None:
        repeated.update({key: pool.flow.reannounced_blocks for key, pool in recount.pools.items()})

    recount.on_window_closed = add
    for offset, record in enumerate(played.records):
        recount.apply(offset, record)
    counted = {
        (medium, group): (held.entries, held.blocks)
        for medium, group, held in recount.held(NOW)
        if held.blocks
    }
    rows = [row for row in played.agent.source().occupancy() if row.blocks]
    assert counted == {(row.medium, row.group_idx): (row.entries, row.blocks) for row in rows}
    add(0)
    flow = played.agent.flow()
    assert repeated == {key: pool.reannounced_blocks for key, pool in flow.items()}
