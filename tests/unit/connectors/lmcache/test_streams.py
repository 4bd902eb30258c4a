"""Batches of LMCache's servers to records: lives, numbers, gaps, and where a successor goes on."""

from __future__ import annotations

import random
from typing import Any

import pytest

from connectors.lmcache.decoder import Part, Reported
from connectors.lmcache.streams import MemoryStream, ReportStream, StorageStream
from connectors.order.records import mention_of
from connectors.positions.ledger import MOST_EMITTERS, advance
from connectors.sources import Source
from schemas.events import Closed, Event, EventsRecord, Gap, Opened, Stored
from schemas.positions import PositionRecord
from schemas.settings import Connector

NOW = 1_800_000_000.0
SOURCE = Source("a@m", 0, "m", "t", "m/lmcache/t", "kafka:t")
SETTINGS = Connector(linger_seconds=60.0)


def reported(seq: int, incarnation: int = 100, instance: str = "a") -> Reported:
    return Reported(instance, incarnation, seq, NOW + seq, 100, {})


def part(number: int) -> Part:
    return Part([Stored(number.to_bytes(8, "big"), 4, 4, "cpu")], 1)


def fed(stream: ReportStream, *batches: Reported) -> list[EventsRecord]:
    found = []
    for number, batch in enumerate(batches):
        found += stream.take(batch, part(number), NOW + number)
    return found + stream.flush()


def notices(records: list[EventsRecord]) -> list[Event]:
    return [
        event for record in records for batch in record.batches if batch.seq is None for event in batch.events
    ]


def numbers(records: list[EventsRecord]) -> list[tuple[int, int]]:
    return [
        (record.incarnation, batch.seq)
        for record in records
        for batch in record.batches
        if batch.seq is not None
    ]


def memory(resume: PositionRecord | None = None) -> MemoryStream:
    return MemoryStream(SOURCE, SETTINGS, lambda: NOW, resume=resume)


def storage(resume: PositionRecord | None = None) -> StorageStream:
    return StorageStream(SOURCE, SETTINGS, lambda: NOW, resume=resume)


def position(records: list[EventsRecord], upto: int | None = None) -> PositionRecord:
    found = PositionRecord("a@m", 0, 0, -1)
    for record in records[:upto]:
        advance(found, mention_of(record))
    return found


def test_memory_lives_as_long_as_its_server() -> None:
    records = fed(memory(), *(reported(n) for n in (1, 2)), *(reported(n, 200) for n in (1, 2)))
    assert numbers(records) == [(100 * 10**6, 0), (100 * 10**6, 1), (200 * 10**6, 0), (200 * 10**6, 1)]
    assert notices(records) == [
        Opened(0, True, "kafka:t"),
        Closed("restarted"),
        Opened(0, True, "kafka:t"),
    ]
    assert {(record.engine, record.one_copy) for record in records} == {("lmcache", True)}


def test_memory_tells_duplicates_gaps_and_past_lives_apart() -> None:
    stream = memory()
    records = fed(stream, *(reported(n) for n in (3, 4, 4, 3, 8)), reported(1, 99), reported(9))
    assert [seq for _, seq in numbers(records)] == [2, 3, 7, 8]
    assert notices(records) == [Opened(2, False, "kafka:t"), Gap(4, 6, "replay_not_configured")]
    counts = stream.counts
    assert (counts.duplicates, counts.left_out["past_life"], counts.lost_batches) == (2, 1, 3)
    assert sum(record.duplicates for record in records) == 2


def test_a_silent_server_is_closed_and_goes_on_as_another_life() -> None:
    stream = memory()
    records = fed(stream, reported(1))
    records += stream.end("silent", NOW + 100.0)
    records += fed(stream, reported(1), reported(2))
    assert notices(records) == [Opened(0, True, "kafka:t"), Closed("silent"), Opened(1, False, "kafka:t")]
    assert numbers(records) == [(100 * 10**6, 0), (100 * 10**6 + 1, 1)]
    assert numbers(fed(memory(position(records)), reported(1), reported(2), reported(3))) == [
        (100 * 10**6 + 1, 2)
    ]


def test_storage_numbers_what_arrives_and_knows_each_server() -> None:
    stream = storage()
    records = fed(
        stream,
        reported(5),
        reported(2, 7, "b"),
        reported(6),
        reported(6),
        reported(9),
        reported(1, 7, "b"),
        reported(3, 8, "b"),
    )
    assert [seq for _, seq in numbers(records)] == [1, 2, 3, 6, 9]
    lost = "replay_not_configured"
    assert notices(records) == [Opened(1, False, "kafka:t"), Gap(4, 5, lost), Gap(7, 8, lost)]
    assert records[-1].emitters == {"a": (100, 9), "b": (8, 3)}
    assert records[-1].remarks == []  # losses are seen


def test_what_is_odd_about_a_source_is_in_the_records_of_each_of_its_lives() -> None:
    stream = MemoryStream(SOURCE, SETTINGS, lambda: NOW, remark="made_up_id")
    records = [
        record for record in fed(stream, reported(1), reported(1, 200)) if record.first_seq is not None
    ]
    assert [record.remarks for record in records] == [["made_up_id"]] * 2


def test_storage_forgets_servers_that_reported_long_ago() -> None:
    stream = storage()
    servers = [f"made-up-{number}" for number in range(MOST_EMITTERS + 5)]
    fed(stream, reported(1, 7, servers[0]), *(reported(1, 7, server) for server in servers[1:]))
    fed(stream, reported(2, 7, servers[0]))
    assert [*stream.servers] == [*servers[6:], servers[0]]


def many(rng: random.Random) -> list[Reported]:
    """Batches of three servers, some lost, some repeated, some of new lives."""
    at = {name: (rng.randint(1, 5), 0) for name in "abc"}
    found: list[Reported] = []
    for _ in range(120):
        name = rng.choice("abc")
        life, seq = at[name]
        if rng.random() < 0.03:
            life, seq = life + 1, 0
        at[name] = life, seq + (1 if rng.random() < 0.9 else rng.randint(2, 4))
        found.append(reported(at[name][1], life, name))
        if rng.random() < 0.1:
            found.append(rng.choice(found))
    return found


def applied(records: list[EventsRecord]) -> tuple[dict[Any, Any], list[Event]]:
    """Batches by life and number, each once, and gaps as a reader counts them."""
    batches = {
        (record.incarnation, batch.seq): batch.events
        for record in reversed(records)
        for batch in record.batches
        if batch.seq is not None
    }
    return batches, [*dict.fromkeys(map(repr, notices(records)))]


def run(stream: ReportStream, batches: list[Reported], first: int, end: int) -> list[EventsRecord]:
    found = []
    for number in range(first, end):
        found += stream.take(batches[number], part(number), NOW + number)
    return found


@pytest.mark.parametrize("kind", [MemoryStream, StorageStream])
@pytest.mark.parametrize("seed", range(60))
def test_killed_anywhere_a_successor_comes_to_the_same(
    kind: type[MemoryStream] | type[StorageStream], seed: int
) -> None:
    """It reads again from some batch on before which everything is in the log; the log ends at any record."""
    rng = random.Random(seed)
    batches = [batch for batch in many(rng) if kind is StorageStream or batch.instance == "a"]
    small = Connector(record_bytes=150, linger_seconds=60.0)
    undisturbed = kind(SOURCE, small, lambda: NOW)
    expected = run(undisturbed, batches, 0, len(batches)) + undisturbed.flush()
    log: list[EventsRecord] = []
    for _ in range(5):
        done = committed(batches, log)
        stream = kind(SOURCE, small, lambda: NOW, resume=position(log))
        closed = run(stream, batches, done - rng.randint(0, min(done, 5)), rng.randint(done, len(batches)))
        log += closed[: rng.randint(0, len(closed))]
    stream = kind(SOURCE, small, lambda: NOW, resume=position(log))
    log += run(stream, batches, committed(batches, log), len(batches)) + stream.flush()
    assert applied(log) == applied(expected)


def committed(batches: list[Reported], log: list[EventsRecord]) -> int:
    """How many batches are in the log, or repeat what was before them, without one that is not."""
    present = {
        event.hashes
        for record in log
        for batch in record.batches
        for event in batch.events
        if isinstance(event, Stored)
    }
    reached: dict[str, tuple[int, int]] = {}
    for number, batch in enumerate(batches):
        life = batch.incarnation, batch.seq
        if life <= reached.get(batch.instance, (0, 0)):
            continue
        if number.to_bytes(8, "big") not in present:
            return number
        reached[batch.instance] = life
    return len(batches)
