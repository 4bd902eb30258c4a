"""What servers load from storage for one request: by what LMCache's own memory said, and by hand."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from connectors.lmcache.decoder import Place, ReportDecoder, Reported
from connectors.lmcache.loads import Loads, LoadsOfServers
from connectors.lmcache.streams import MemoryStream, ReportStream, StorageStream
from connectors.sources import Source
from pipeline.verify.replica.source import SourceRecount
from schemas.events import EventsRecord
from schemas.rows import FlowRow, ObjectsRow, Row
from schemas.settings import Connector, Worker
from tests.support.inputs.captures import reported, reported_truth
from tests.support.inputs.event_records import held_after
from tests.support.replica_agent import ReplicaAgent

MODEL = "org/model-x"
NOW = 1_800_000_100.0
MEMORY, STORAGE = Place("node-a", "", MODEL), Place("node-a", "fs", MODEL)
ONE = (MODEL, 0, b"12345678")


def played(name: str, place: Place, *, retains: bool) -> list[EventsRecord]:
    """Return the records of a place, of what a server reported."""
    decoder = ReportDecoder([MODEL], None, retains=retains)
    source = Source("a@m", 0, "m", "t", "m/lmcache/t", "kafka:t")
    kind = StorageStream if place.backend else MemoryStream
    stream: ReportStream = kind(source, Connector(linger_seconds=60.0), lambda: NOW)
    records: list[EventsRecord] = []
    for _, value in reported(name, "records"):
        found, refused = decoder.decode(value)
        assert not refused
        for one in found:
            if place in one.parts or not place.backend:
                records += stream.take(one, one.parts.get(place), NOW)
    return [*records, *stream.flush()]


def totals(records: list[EventsRecord]) -> dict[str, Any]:
    """Return sums over the rows; memory's occupancy is that of a recount as well."""
    agent, recount = ReplicaAgent(), SourceRecount("a@m", 0, Worker())
    newest: dict[tuple[object, ...], Row] = {}
    for offset, record in enumerate(records):
        agent.apply(record)
        recount.apply(offset, record)
        for row in agent.cut(NOW).rows:
            if isinstance(row, FlowRow | ObjectsRow):
                newest[type(row), row.window, row.medium, row.group_idx] = row
    sums: dict[str, Any] = {}
    for row in newest.values():
        for column, value in msgspec.structs.asdict(row).items():
            if isinstance(value, int) and not isinstance(value, bool):
                sums[column] = sums.get(column, 0) + value
            elif isinstance(value, list | tuple):
                sums[column] = sums.get(column, 0) + sum(value)
    [held] = {held.blocks for _, _, held in recount.held(NOW)}
    return {**sums, "held": held}


def test_hits_of_storage_are_no_use_of_memory() -> None:
    """80 chunks stored, 4 evicted; of these, 2 loaded 30 times, each touched when loaded and at the end.

    Each of the 80 was touched once, at the end of the request that stored it: memory's only accesses.
    """
    name = "lmcache-0.5.6-loads-default"
    records, truth = played(name, MEMORY, retains=False), reported_truth(name)
    found = totals(records)
    assert held_after(records) == {"cpu": {int(digest[-16:], 16) for digest in truth["held"]}}
    assert (found["held"], truth["stored"], truth["evicted"]) == (76, 80, 4)
    assert (found["filled_blocks"], found["evicted_blocks"], found["lifetime_hist"]) == (80, 4, 4)
    assert (found["stored_objects"], found["uses_hist"]) == (80, 4)
    assert (found["accesses"], found["needed_hist"], found["unknown_accesses"]) == (80, 80, 30 * 2 * 2)
    assert totals(played(name, STORAGE, retains=False))["hits"] == 60


@pytest.mark.parametrize(
    ("retains", "evicted", "accesses", "unknown"),
    # 2 are loaded once and evicted in the end; 30 requests touch each twice.
    [(True, 6, 80 + 30 * 2 * 2, 0), (False, 4, 80, 30 * 2 * 2)],
)
def test_what_servers_retain_is_in_memory(retains: bool, evicted: int, accesses: int, unknown: int) -> None:
    name = "lmcache-0.5.6-loads-retain"
    found = totals(played(name, MEMORY, retains=retains))
    assert (found["held"], found["evicted_blocks"]) == (76, evicted)
    assert found["filled_blocks"] == 76 + evicted
    assert (found["accesses"], found["unknown_accesses"]) == (accesses, unknown)


def test_only_what_was_just_read_is_a_load() -> None:
    loads = Loads(7)
    assert not loads.stored(ONE, 10.0)
    loads.read(ONE, 10.0)
    assert loads.stored(ONE, 70.0)
    # The engine stores it as well while the request has it, so that it stays.
    assert not loads.stored(ONE, 71.0)
    assert not loads.deleted(ONE)
    loads.read(ONE, 100.0)
    assert not loads.stored(ONE, 161.0)
    loads.read(ONE, 200.0)
    assert not loads.deleted(ONE)
    assert not loads.stored(ONE, 201.0)


def test_what_stays_is_told() -> None:
    loads = Loads(7)
    loads.read(ONE, 10.0)
    assert loads.stored(ONE, 20.0)
    assert not loads.stay(620.0)
    assert loads.stay(621.0)
    assert loads.deleted(ONE)
    assert not loads.stay(9_999.0)
    stream = MemoryStream(Source("a@m", 0, "m", "t", "m/lmcache/t", "kafka:t"), Connector(), lambda: NOW)
    records = stream.take(Reported("a", 7, 1, NOW, 9, {}), None, NOW)
    records += stream.take(Reported("a", 7, 2, NOW, 9, {}, loads_stay=True), None, NOW)
    records += stream.flush()
    assert [*records][-1].remarks == ["loads_stay"]


def test_batches_that_come_again_and_lives_that_are_over_change_nothing() -> None:
    servers = LoadsOfServers()
    first = servers.of("a", 7, 1)
    assert first is not None
    first.read(ONE, 1.0)
    assert servers.of("a", 7, 1) is None
    assert servers.of("a", 7, 3) is first
    second = servers.of("a", 8, 1)
    assert second is not None
    assert not second.stored(ONE, 1.0)
    assert servers.of("a", 7, 9) is None
    servers.keep(["b"])
    assert servers.of("a", 8, 1) is not second


@pytest.mark.parametrize(("backend", "events"), [("fs", 0), ("s3", 1), ("valkey", 1), ("acme", 1)])
def test_a_storage_that_tells_what_it_found_does_not_tell_what_is_loaded(backend: str, events: int) -> None:
    """What a lookup found may be computed all the same, if the prompt has a hole before it."""
    key = {"chunk_hash_hex": "00" * 8 + "11" * 8, "model_name": MODEL, "kv_rank": 0x01000100}
    decoder = ReportDecoder([MODEL], None)
    said = []
    for seq, (kind, tier, where) in enumerate([("access", "l2", backend), ("store", "l1", "dram")], 1):
        batch = {
            "instance_id": "node-a",
            "incarnation": 7,
            "seq": seq,
            "event_type": kind,
            "tier": tier,
            "backend": where,
            "entries": [{"key": key, "size_bytes": 1}],
        }
        [one], _ = decoder.decode(json.dumps({"batches": [batch]}).encode())
        said.append(one)
    part = said[1].parts[MEMORY]
    assert (len(part.events), part.skipped, part.engine_events) == (events, 1 - events, 1)
