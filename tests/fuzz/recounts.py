"""Mutants of payloads as a log, and what a worker makes of it beside a recount, all in one process."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

from connectors.frames.bundle import Bundle
from connectors.kafka.encoding import JSON
from connectors.order.stream import SourceStream
from connectors.publish.encoding import RecordEncoding
from connectors.sources import Source
from pipeline.kafka.acceptance import accepted_events, accepted_residency
from pipeline.reading.numbered import Readable, one_by_one
from pipeline.reading.partly_plain import PartlyPlain
from pipeline.reading.plain_runs import PlainRun
from pipeline.reading.records import read
from pipeline.residency.cut import Cut
from pipeline.residency.partition import PartitionState
from pipeline.verify.findings import Findings
from pipeline.verify.fleet.topic_check import TopicCheck
from pipeline.verify.keys import RowKey, SourceId, key_of
from pipeline.verify.replica.expected import ReplicaRow
from pipeline.verify.replica.partition import PartitionCheck
from schemas.events import EventsRecord
from schemas.settings import Connector, Fleet, Kafka, Worker
from tests.fuzz.mutants import Mutants
from tests.support import fleet_recount

BEGAN = 1_800_000_000.0
LONG_AGO = datetime(1970, 1, 1, tzinfo=timezone.utc)
SHARDS = 2
KEPT_FOR_REPLAYS = 60
"""Messages of a stream."""
FINE_BLOCK_AGES = (20.0, 3_600.0)
CLOCKS_BEHIND = (86_400.0, 1e9)
"""Seconds: an engine's time is not believed, or the recorded times are, which belong to many days."""
PAUSES = (0.001, 0.01, 0.3, 0.3, 2.0, 11.0)
"""Seconds between two steps."""


@dataclass(frozen=True, slots=True)
class Logged:
    """A record of the events topic."""

    value: bytes
    headers: list[tuple[str, bytes]]

    def decoded(self) -> EventsRecord:
        return accepted_events(self.value, self.headers, None)


class Engine:
    """Sends mutants and recorded payloads under its numbers; some get lost, and only some come again."""

    def __init__(self, name: str, mutants: Mutants, rng: random.Random) -> None:
        self._mutants = mutants
        self._rng = rng
        self._now = BEGAN
        self._lies = rng.choice((0.1, 0.8))
        source = Source(name, 0, "m", "t", "m/s/t", "tcp://x:1", replay_endpoint="tcp://x:2")
        self._stream = SourceStream(source, Connector(), lambda: self._now)
        self._kept: deque[tuple[int, bytes]] = deque(maxlen=KEPT_FOR_REPLAYS)
        self._seq = 0

    def step(self, now: float, first: int, count: int) -> list[EventsRecord]:
        """Send `count` messages, of which the mutants have the numbers from `first` on."""
        self._now, rng = now, self._rng
        if rng.random() < 0.01:
            self._seq = 0  # it restarts
        messages = [self._message(number) for number in range(first, first + count)]
        heard = [message for message in messages if rng.random() > 0.02]
        records = self._stream.feed_all(Bundle.of(heard) if rng.random() < 0.5 else heard, now)
        if self._stream.ask is not None:
            records += self._answered(self._stream.ask.first)
        # Records end anywhere: with as many bytes as they may have, or with the time.
        return records + (self._stream.flush() if rng.random() < 0.5 else [])

    def last(self) -> list[EventsRecord]:
        """Return what was held back."""
        return self._stream.flush()

    def _message(self, number: int) -> tuple[bytes, bytes, bytes]:
        payload = (
            self._mutants.mutant(number)
            if self._rng.random() < self._lies
            else self._mutants.recorded(number)
        )
        self._kept.append((self._seq, payload))
        self._seq += 1
        return b"", (self._seq - 1).to_bytes(8, "big"), payload

    def _answered(self, first: int) -> list[EventsRecord]:
        kept = [one for one in self._kept if one[0] >= first and self._rng.random() > 0.05]
        self._stream.asked()
        return self._stream.replayed(kept, self._now) + self._stream.replay_ended("end", self._now)


def log_of(seed: int, mutants: Mutants, payloads: int, *, engines: int = 2) -> list[Logged]:
    """Return the log of engines that send so many payloads together."""
    rng = random.Random(f"log/{seed}")
    encodings = [RecordEncoding(Kafka(record_format=name)) for name in ("msgpack", "json")]
    sending = [Engine(f"liar-{number}", mutants, rng) for number in range(engines)]
    records: list[EventsRecord] = []
    now, sent = BEGAN, 0
    while sent < payloads:
        now += rng.choice(PAUSES)
        count = rng.choice((1, 3, 20))
        records += rng.choice(sending).step(now, seed * payloads + sent, count)
        sent += count
    for engine in sending:
        records += engine.last()
    # What scanned batches are packed into can be no JSON.
    chosen = [encodings[type(one) is EventsRecord and rng.random() < 0.1] for one in records]
    return [
        Logged(encoding.value(one), encoding.headers_of(one))
        for encoding, one in zip(chosen, records, strict=True)
    ]


@dataclass
class Written:
    """What a worker left: the newest version of each row, and the records of residency that it committed."""

    rows: dict[RowKey, Any] = field(default_factory=dict)
    residency: list[tuple[int, bytes]] = field(default_factory=list)
    """(shard, value)"""
    restored: int = 0
    """Times that a worker went on with the state of a checkpoint."""
    plain: int = 0
    """Records that were applied as columns."""
    partly: int = 0
    """Records that were applied in parts, most of them as columns."""

    def insert(self, rows: Iterable[Any]) -> None:
        for row in rows:
            known = self.rows.get(key_of(row))
            if known is None or row.version >= known.version:
                self.rows[key_of(row)] = row

    def by_source(self) -> dict[SourceId, list[ReplicaRow]]:
        found: dict[SourceId, list[ReplicaRow]] = {}
        for row in self.rows.values():
            found.setdefault((row.replica, row.dp_rank), []).append(row)
        return found


def worked(seed: int, log: Sequence[Logged], settings: Worker) -> Written:
    """Apply a log in fetches of any size; checkpoints are made, and states lost, between any two records."""
    rng = random.Random(f"worker/{seed}")
    written = Written()
    latest: dict[bytes, bytes] = {}
    state = PartitionState(0, settings, shards=SHARDS)
    newest = BEGAN

    def commit(cut: Cut) -> None:
        written.residency += [(shard, value) for shard, _, value in cut.residency]
        for key, value in cut.checkpoints:
            if value is None:
                latest.pop(key, None)
            else:
                latest[key] = value

    while state.next_offset < len(log):
        fetched = log[state.next_offset : state.next_offset + rng.choice((1, 1, 4, 20, 64))]
        is_json = ("content-type", JSON)
        values = [None if is_json in one.headers else one.value for one in fetched]
        offsets = range(state.next_offset, state.next_offset + len(fetched))
        reading = read(values, settings, offsets=offsets)
        columns = dict(one_by_one([(int(run.offsets[0]), run) for run in reading.runs]))
        columns |= {offsets[at]: partly for at, partly in reading.partly}
        for offset, one in zip(offsets, fetched, strict=True):
            record = one.decoded()
            newest = max([newest, *(batch.received_at for batch in record.batches)])
            use: Readable = columns.get(offset, record) if rng.random() < 0.9 else record
            written.plain += isinstance(use, PlainRun)
            written.partly += isinstance(use, PartlyPlain)
            state.apply(state.next_offset, use)
            kind = rng.random()
            if kind < 0.15:
                cut = state.cut(newest + rng.choice((0.0, 0.0, 100.0)))
                written.insert(cut.rows)
                if kind > 0.02:
                    commit(cut)
                if kind < 0.04:
                    state = PartitionState.restore(0, settings, shards=SHARDS, latest=latest)
                    written.restored += 1
                    break
    for _ in range(2):  # what is carried comes after what changed
        cut = state.cut(newest + 50.0)
        written.insert(cut.rows)
        commit(cut)
    return written


def recounted(log: Sequence[Logged], written: Written, settings: Worker) -> Findings:
    """Compare every row, the residency topic, and what the fleet makes of that, with recounts."""
    findings, topic = Findings(), TopicCheck()
    check = PartitionCheck(
        settings, written.by_source(), findings, begin=0, committed=len(log), oldest=LONG_AGO
    )
    for offset, one in enumerate(log):
        check.apply(offset, one.decoded())
    check.finish(len(log))
    for sums in check.residency_sums():
        topic.expect(0, len(log), sums)
    fleet = Fleet()
    for shard in range(SHARDS):
        of_shard = [accepted_residency(value, (), None) for into, value in written.residency if into == shard]
        for record in of_shard:
            topic.apply(record)
        # Every second record is the last one before a checkpoint.
        rows = fleet_recount.rows_of(of_shard, fleet, every=2)
        of_fleet = fleet_recount.compared(of_shard, rows, fleet)
        findings.compared += of_fleet.compared
        for difference in of_fleet.kept:
            findings.differ(difference)
    topic.finish(findings)
    return findings


def compared(seed: int, mutants: Mutants, payloads: int) -> tuple[Written, Findings]:
    """Return what a worker left of a log, and what a recount found of it; both depend on the seed alone."""
    rng = random.Random(f"settings/{seed}")
    limits: dict[str, Any] = {
        "fine_block_age_seconds": rng.choice(FINE_BLOCK_AGES),
        "max_clock_behind_seconds": rng.choice(CLOCKS_BEHIND),
        "max_pool_sizes": rng.choice((8, 256, 256)),
        "max_itemised_blocks": rng.choice((200, 400_000, 400_000)),
        "reannounced": rng.choice(("auto", "off")),
        "clear_scope": rng.choice(("gpu", "all")),
    }
    settings = Worker(**limits)
    log = log_of(seed, mutants, payloads)
    written = worked(seed, log, settings)
    return written, recounted(log, written, settings)
