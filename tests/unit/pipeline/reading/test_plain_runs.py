"""What compiled code reads of records is what the schema says of them, and states make the same of it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from operator import itemgetter
from typing import Any

import msgspec
import pytest

from pipeline.kafka.acceptance import accepted_events
from pipeline.kafka.refusal import RecordRefused
from pipeline.reading import plain_runs as module
from pipeline.reading.columns import REMOVAL
from pipeline.reading.plain_runs import PlainRun
from pipeline.reading.records import read as read_runs
from pipeline.reading.words import WORDS
from pipeline.residency import limits as residency_limits
from pipeline.residency.counting import pool, shared
from pipeline.residency.partition import PartitionState
from schemas.events import Batch, EventsRecord, Removed, Stored
from schemas.hashes import unpack_hashes
from schemas.settings import Worker
from tests.support.guarded_memory import guarded_all
from tests.support.in_parts import read_in_parts
from tests.support.inputs.mutants import mutated
from tests.support.inputs.ordinary_walks import OrdinaryWalk
from tests.support.inputs.source_walks import BEGAN, Walk
from tests.support.one_secret import with_one_secret
from tests.support.plain_runs import plain_runs
from tests.support.suite.night import at_night, first_by_day

encode = msgspec.msgpack.encode
OF_THE_DAY = 3
"""The seed of shorter walks."""


def walks(seed: int, count: int) -> list[EventsRecord]:
    """Return records of four sources in turns, one of them with two granularities."""
    kinds: list[Walk] = [OrdinaryWalk(seed + at, replica=name) for at, name in enumerate("abc")]
    kinds.append(OrdinaryWalk(seed + 3, hybrid=True, replica="d"))
    sources = zip(*(kind.records(count) for kind in kinds), strict=False)
    return [record for turn in sources for record in turn]


def columns(run: PlainRun) -> list[tuple[Any, ...]]:
    """Return (time, pool, size, hashes, parent, LoRA, may repeat) of each event."""
    found = []
    at = run.first_hash
    for row in run.chunk.events[run.first_event : run.end]:
        hashes = run.chunk.hashes[at : at + row["hashes"]].tolist()
        at += int(row["hashes"])
        lora = run.chunk.loras[row["adapter"] - 1] if row["adapter"] else None
        name, size = run.chunk.pools[row["pool"]], int(row["block_size"])
        found.append(
            (float(row["time"]), name, size, hashes, int(row["parent"]), lora, bool(row["may_repeat"]))
        )
    assert at == run.hashes_end
    return found


def said(record: EventsRecord) -> list[tuple[Any, ...]]:
    """Return the same of a decoded record."""
    found = []
    for batch in record.batches:
        for event in batch.events:
            assert isinstance(event, Stored | Removed)
            name, hashes = (event.medium, event.group_idx), [*unpack_hashes(event.hashes)]
            if isinstance(event, Removed):
                found.append((batch.ts, name, REMOVAL, hashes, 0, None, False))
            else:
                parent = 0 if event.parent is None else unpack_hashes(event.parent)[0]
                new = event.parent is None
                found.append((batch.ts, name, event.block_size, hashes, parent, event.lora, new))
    return found


def assert_same(run: PlainRun, record: EventsRecord) -> None:
    """Check all that a run says against its record."""
    batches = record.batches
    assert run.decoded() == record
    assert columns(run) == said(record)
    sequence = [batch.seq for batch in batches]
    assert sequence == [*range(run.first_seq, run.last_seq + 1)]
    assert run.batches == len(batches)
    assert run.engine_events == sum(batch.engine_events for batch in batches)
    times = [batch.ts for batch in batches]
    assert (run.first_time, run.last_time, run.time) == (min(times), max(times), times[-1])
    receipts = [batch.received_at for batch in batches]
    assert (run.received_at, run.latest_receipt) == (receipts[-1], max(receipts))
    assert run.lag == max(batch.received_at - batch.ts for batch in batches)
    assert not any(batch.replayed for batch in batches)
    pools = {(each[1], each[2], len(each[3]) > 1 and each[2] != REMOVAL) for each in said(record)}
    assert {(*shape,) for shape in run.shapes} == pools
    assert {name for name, _ in run.events_by_pool()} == {name for name, _, _ in pools}
    for name, events in run.events_by_pool():
        of_pool = [each for each in said(record) if each[1] == name]
        assert events.hashes.tolist() == [block for each in of_pool for block in each[3]]
        assert events.rows["time"].tolist() == [each[0] for each in of_pool]


@pytest.fixture(autouse=True)
def no_reading_beyond(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever reads or writes behind an array ends the process."""
    compiled = module.scan_runs

    def scan(*given: Any) -> None:
        kept = [guarded_all(one) for one in given]
        compiled(*kept)
        for one, its_copy in zip(given[5:], kept[5:], strict=True):
            for into, found in zip(
                one if isinstance(one, tuple) else (one,),
                its_copy if isinstance(its_copy, tuple) else (its_copy,),
                strict=True,
            ):
                into[...] = found

    monkeypatch.setattr(module, "scan_runs", scan)


@pytest.mark.parametrize("seed", first_by_day(range(4)))
def test_what_is_read_is_what_the_records_say(seed: int) -> None:
    records = walks(seed, 150)
    values = [encode(record) for record in records]
    runs = [
        run for begin in range(0, len(values), 7) for run in plain_runs(values[begin : begin + 7], Worker())
    ]
    plain = 0
    for record, run in zip(records, runs, strict=True):
        if run is not None:
            assert_same(run, record)
            plain += 1
    assert plain > len(records) // 3


def test_what_a_refused_record_needed_is_there_for_the_others() -> None:
    def record(*events: Stored, replayed: bool = False) -> bytes:
        batch = Batch(7, BEGAN, BEGAN, [*events], len(events), replayed)
        return encode(EventsRecord("r", "m", "d", 0, 1, [batch]))

    greedy = record(
        *(Stored(bytes(8), size, medium=f"tier-{size}", lora=f"adapter-{size}") for size in range(62)),
        replayed=True,
    )
    honest = record(*(Stored(bytes(8), size, medium=f"of-{size}", lora=f"a-{size}") for size in range(62)))
    found = plain_runs([greedy, honest, record(Stored(bytes(8), 99)), honest], Worker())
    assert [run is not None for run in found] == [False, True, False, True]


def test_of_what_is_no_record_nothing_is_said() -> None:
    fine = encode(OrdinaryWalk(1)._record())
    assert plain_runs([None, b"", b"\xc1", fine[:-1], fine + b"\0", b"{}"], Worker()) == [None] * 6
    assert plain_runs([], Worker()) == []


@pytest.mark.parametrize("seed", first_by_day(range(3, 6)))
def test_mutants_are_read_as_they_are_decoded_or_not_at_all(seed: int) -> None:
    rng = random.Random(seed)
    fine = [encode(record) for record in walks(5, 60)]
    fine = [value for value, run in zip(fine, plain_runs(fine, Worker()), strict=True) if run is not None]
    plain = 0
    for _ in range(50):
        values = [mutated(rng.choice(fine), rng, times=rng.choice([0, 1, 1, 2])) for _ in range(20)]
        for value, run in zip(values, plain_runs(values, Worker()), strict=True):
            if run is not None:
                plain += 1
                try:
                    assert_same(run, accepted_events(value, (), None))
                except RecordRefused as refused:
                    raise AssertionError(value) from refused
    assert plain > 100


def test_every_field_of_an_event_is_known() -> None:
    known = {bytes(row[1 : 1 + row[0]]).decode() for row in WORDS} - {"stored", "removed", "gpu"}
    assert known == {"type", *Stored.__struct_fields__, *Removed.__struct_fields__}


@pytest.mark.parametrize(
    "limits",
    [
        {},
        pytest.param({"reannounced": "off"}, marks=pytest.mark.night),
        {"clear_scope": "all", "adapters": 1},
        {"max_blocks": (1 << 20) + 40, "max_itemised_blocks": 30},
        pytest.param({"max_pool_sizes": 3}, marks=pytest.mark.night),
    ],
)
@pytest.mark.parametrize("seed", [OF_THE_DAY, *at_night(range(3))])
def test_states_are_the_same(seed: int, limits: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    with_one_secret(monkeypatch)
    read_in_parts(monkeypatch)
    if seed >= 2:
        monkeypatch.setattr(shared, "EARLY_HASHES", 30)
        monkeypatch.setattr(pool, "EARLY_HASHES", 30)
        monkeypatch.setattr(pool, "EARLY_STORES", 12)
    rng = random.Random(seed)
    monkeypatch.setattr(residency_limits, "MOST_ADAPTERS", limits.get("adapters", 1000))
    settings = Worker(**{name: limit for name, limit in limits.items() if name != "adapters"})
    states = [PartitionState(0, settings, shards=3) for _ in range(3)]
    saved: dict[bytes, bytes | None] = {}
    values = [encode(record) for record in walks(100 + seed, 40 if seed == OF_THE_DAY else 250)]
    offset = plain = joined = in_parts = 0
    while offset < len(values):
        some = values[offset : offset + rng.choice([1, 3, 20])]
        decoded = [accepted_events(value, (), None) for value in some]
        runs_alone = plain_runs(some, settings, first=offset)
        read: Sequence[Any] = [run or record for run, record in zip(runs_alone, decoded, strict=True)]
        plain += sum(isinstance(one, PlainRun) for one in read)
        reading = read_runs(some, settings, offsets=range(offset, offset + len(some)))
        joined += sum(len(run.records) > 1 for run in reading.runs)
        in_parts += len(reading.partly)
        others = [(offset + at, accepted_events(some[at], (), None)) for at in reading.others]
        runs = [(int(run.offsets[0]), run) for run in reading.runs]
        partly = [(offset + at, record) for at, record in reading.partly]
        states[2].apply_all(sorted([*runs, *partly, *others], key=itemgetter(0)))
        for one, record in zip(read, [accepted_events(value, (), None) for value in some], strict=True):
            states[0].apply(offset, record)
            states[1].apply(offset, one)
            offset += 1
        if rng.random() < 0.2:
            now = BEGAN + offset
            ordinary, columnar, together = (state.cut(now) for state in states)
            assert columnar == ordinary
            assert together == ordinary
            saved |= columnar.checkpoints
        if saved and rng.random() < 0.1:
            # All from the last checkpoint, as after a kill; what came since comes again.
            latest = {key: value for key, value in saved.items() if value is not None}
            states = [PartitionState.restore(0, settings, shards=3, latest=latest) for _ in range(3)]
            offset = states[0].next_offset
            continue
        assert states[1].take_left_out() == states[0].take_left_out()
    ordinary, columnar, together = (state.cut(BEGAN + 1e5) for state in states)
    assert columnar == ordinary
    assert together == ordinary
    assert states[1].troubles() == states[0].troubles()
    assert plain > len(values) // 3
    assert joined
    assert in_parts > len(values) // 20
