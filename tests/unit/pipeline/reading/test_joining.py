"""Runs that came one behind the other are applied as one, and nobody can tell."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter

import msgspec
import pytest

from pipeline.reading.numbered import Numbered
from pipeline.reading.plain_runs import PlainRun
from pipeline.reading.records import read as read_runs
from pipeline.residency.partition import PartitionState
from schemas.events import Batch, EventsRecord, Removed, Stored
from schemas.settings import Worker
from tests.support.inputs import event_records
from tests.support.inputs.event_records import batch, record
from tests.support.inputs.packed import packed
from tests.support.one_secret import with_one_secret

START = 1e9


def run(name: str, seq: int, at: float, **said: object) -> EventsRecord:
    """Return a record of two batches: blocks come, and those of the record before leave."""
    block = 2 * seq + 1
    gone = [Removed(packed(block - 4))] if seq > 2 else []
    later = Batch(seq + 1, at + 0.5, at + 0.75, [*gone], 1)
    return record(batch(seq, at, Stored(packed(block), 16)), later, replica=name, **said)


def opened(name: str) -> EventsRecord:
    return record(event_records.opened(START), replica=name)


def read(records: Sequence[EventsRecord], first: int = 0) -> list[Numbered]:
    values = [*map(msgspec.msgpack.encode, records)]
    reading = read_runs(values, Worker(), offsets=range(first, first + len(values)))
    assert not reading.unknown
    numbered: list[Numbered] = [(int(run.offsets[0]), run) for run in reading.runs]
    return sorted([*numbered, *((first + at, records[at]) for at in reading.others)], key=itemgetter(0))


def lengths(records: Sequence[EventsRecord]) -> list[int]:
    """Return how many records are in each run, 0 for a record that is not plain."""
    return [len(one.records) if isinstance(one, PlainRun) else 0 for _, one in read(records)]


@pytest.fixture(autouse=True)
def one_spread(monkeypatch: pytest.MonkeyPatch) -> None:
    with_one_secret(monkeypatch)


def test_what_goes_on_is_one_run() -> None:
    ordinary = [run("r", seq, START + seq) for seq in (0, 2, 4)]
    assert lengths(ordinary) == [3]
    others = [
        run("r", 8, START + 7),  # 6 is missing
        run("r", 10, START + 9.6),  # ends in the next window
        run("r", 12, START + 11),
        run("r", 14, START + 12, engine="vllm"),
        run("r", 16, START + 13, engine="vllm", duplicates=1),
        run("r", 18, START + 14, engine="vllm"),
    ]
    assert lengths([*ordinary, *others]) == [3, 1, 1, 1, 1, 1, 1]
    noticed = [*ordinary[:2], opened("r"), ordinary[2]]
    assert lengths(noticed) == [2, 0, 1]


def test_sources_in_turns_are_a_run_each() -> None:
    records = [run(name, seq, START + seq) for seq in (0, 2, 4) for name in "ab"]
    found = [(offset, one.offsets.tolist()) for offset, one in read(records, 7) if isinstance(one, PlainRun)]
    assert found == [(7, [7, 9, 11]), (8, [8, 10, 12])]


def test_what_the_log_had_long_before_its_receipt_is_decoded() -> None:
    ahead = Worker().max_clock_ahead_seconds
    records = [run("r", seq, START + seq) for seq in (0, 2, 4)]
    values = [*map(msgspec.msgpack.encode, records)]
    latest = [one.received_at for said in records for one in said.batches[1:]]
    written = [latest[0] - ahead, latest[1] - ahead - 0.01, 0.0]
    reading = read_runs(values, Worker(), offsets=range(3), written=written)
    assert [one.offsets.tolist() for one in reading.runs] == [[0], [2]]
    assert reading.others == [1]


def test_a_joined_run_says_what_its_runs_say() -> None:
    [(_, one)] = read([run("r", seq, START + seq) for seq in (0, 2, 4)])
    assert isinstance(one, PlainRun)
    assert (one.first_seq, one.last_seq, one.batches, one.engine_events) == (0, 5, 6, 6)
    assert (one.first_time, one.last_time, one.time) == (START, START + 4.5, START + 4.5)
    assert (one.received_at, one.latest_receipt, one.lag) == (START + 4.75, START + 4.75, 0.25)
    [(pool, events)] = one.events_by_pool()
    assert pool == ("gpu", 0)
    assert events.hashes.tolist() == [1, 5, 9, 5]
    assert events.rows["hashes"].sum() == one.hash_count == 4
    last = one.part(1, 3)
    assert (last.first_seq, last.last_seq, last.batches, last.offsets.tolist()) == (2, 5, 4, [1, 2])
    assert [events.hashes.tolist() for _, events in last.events_by_pool()] == [[5, 9, 5]]
    assert (last.first_time, last.received_at) == (START + 2, START + 4.75)


@pytest.mark.parametrize("together", [3, 100])
def test_sources_are_forgotten_where_they_are_forgotten_otherwise(together: int) -> None:
    """Sources a and c are silent while b goes on; a comes back, c does not."""
    records = [opened(name) for name in "abc"]
    records += [run(name, seq, START + seq) for seq in (0, 2, 4) for name in "abc"]
    records += [run("b", seq, START + 50 * seq) for seq in range(6, 60, 2)]
    records += [run("a", seq, START + 3000 + seq) for seq in (6, 8)]
    records += [run("b", seq, START + 3010 + seq) for seq in (60, 62)]
    settings = Worker(forget_seconds=600)
    one_by_one, at_once = (PartitionState(0, settings, shards=2) for _ in range(2))
    for offset, said in enumerate(records):
        one_by_one.apply(offset, said)
    for begin in range(0, len(records), together):
        at_once.apply_all(read(records[begin : begin + together], begin))
    assert at_once.next_offset == one_by_one.next_offset == len(records)
    assert at_once.take_forgotten() == one_by_one.take_forgotten() == 2
    assert list(at_once.sources) == list(one_by_one.sources) == [("b", 0), ("a", 0)]
    assert at_once.cut(START + 4000) == one_by_one.cut(START + 4000)


def test_what_another_state_committed_is_not_said_again() -> None:
    records = [opened("a"), *(run("a", seq, START + seq) for seq in (0, 2, 4))]
    states = [PartitionState(0, Worker(), shards=2) for _ in range(2)]
    for state in states:
        state.note_committed(3)
    for offset, said in enumerate(records):
        states[0].apply(offset, said)
    states[1].apply_all(read(records))
    cuts = [state.cut(START + 100) for state in states]
    assert cuts[0] == cuts[1]
    assert cuts[0].dirty
    assert cuts[0].residency
