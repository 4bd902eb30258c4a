"""Media of an owner other than the engine: each block once, apart from the engine's own, also in clears."""

from __future__ import annotations

import pytest

from connectors.order.stream import SourceStream
from connectors.sources import Source
from pipeline.residency.partition import PartitionState
from pipeline.verify.replica.source import SourceRecount
from schemas.events import Batch, Cleared, Event, EventsRecord, Gap, Opened, Removed, Stored
from schemas.hashes import unpack_hashes
from schemas.rows import OccupancyRow
from schemas.settings import Connector, Worker
from tests.support.inputs.captures import captured_frames, captured_truth
from tests.support.inputs.packed import packed

NOW = 1_800_000_000.0
MEDIA = ("gpu", "cpu", "kvcr:cpu", "kvcr:storage", "remote:storage", "other:cpu")


def life(number: int, *events: Event, lost: bool = False) -> EventsRecord:
    at = NOW + number
    batches = [Batch(None, at, at, [Opened(0, complete=True)]), Batch(0, at, at, [])]
    if lost:
        batches.append(Batch(None, at, at, [Gap(1, 2, "not_replayed")]))
    batches.append(Batch(3 if lost else 1, at, at, [*events], len(events)))
    last = 3 if lost else 1
    return EventsRecord("r", "m", "d", 0, number, batches, 0, last, engine="vllm")


def rows_of(*lives: EventsRecord, clears: str = "gpu") -> dict[str, OccupancyRow]:
    """Return the rows by medium, which a recount agrees with."""
    worker = Worker(clear_scope="all" if clears == "all" else "gpu")
    state, recount = PartitionState(0, worker, shards=1), SourceRecount("r", 0, worker)
    for offset, record in enumerate(lives):
        state.apply(offset, record)
        recount.apply(offset, record)
    rows = {row.medium: row for row in state.cut(NOW).rows if isinstance(row, OccupancyRow)}
    held = {medium: held for medium, _, held in recount.held(NOW)}
    assert held.keys() == rows.keys()
    for medium, row in rows.items():
        since = recount.trust.of(medium)
        assert (row.entries, row.blocks, row.trust) == (
            held[medium].entries,
            held[medium].blocks,
            since.trust,
        )
        assert row.trust_since.timestamp() == since.at
    return rows


def everywhere(block: int) -> list[Event]:
    return [Stored(packed(block), 16, 16, None, medium) for medium in MEDIA]


def test_a_block_that_its_owner_repeats_is_one_and_leaves_at_once() -> None:
    store, second = (Stored(packed(block), 16, 16, None, "kvcr:cpu") for block in (1, 2))
    rows = rows_of(life(1, *everywhere(1), store, store, second, Removed(packed(1), "kvcr:cpu")))
    assert (rows["kvcr:cpu"].entries, rows["kvcr:cpu"].store_only, rows["kvcr:cpu"].trust) == (
        1,
        False,
        "partial",
    )
    assert (rows["cpu"].entries, rows["cpu"].trust) == (1, "complete")


@pytest.mark.parametrize("lost", [False, True])
@pytest.mark.parametrize(
    ("scope", "clears", "emptied"),
    [
        ("kvcr:", "gpu", {"kvcr:cpu", "kvcr:storage"}),
        ("kvcr:storage", "gpu", {"kvcr:storage"}),
        ("remote:", "gpu", {"remote:storage"}),
        ("nobody:", "gpu", set()),
        (None, "gpu", {"gpu"}),
        (None, "all", {"gpu", "cpu"}),
        ("", "gpu", {"gpu", "cpu"}),
    ],
)
def test_a_clear_is_of_its_owner_alone(scope: str | None, clears: str, emptied: set[str], lost: bool) -> None:
    rows = rows_of(life(1, *everywhere(1), Cleared(scope), lost=lost), clears=clears)
    assert {medium for medium, row in rows.items() if not row.entries} == emptied
    for medium, row in rows.items():
        best = "partial" if ":" in medium else "complete"
        assert row.trust == (best if medium in emptied or not lost else "degraded"), medium


def test_what_others_own_outlives_the_engine() -> None:
    rows = rows_of(life(1, *everywhere(1)), life(2, Stored(packed(2), 16, 16, None, "kvcr:cpu")))
    held = {medium: row.entries for medium, row in rows.items()}
    assert held == {"kvcr:cpu": 2, "kvcr:storage": 1, "remote:storage": 1, "other:cpu": 1, "gpu": 0, "cpu": 0}
    assert {row.trust for medium, row in rows.items() if ":" in medium} == {"partial"}


def test_what_kvcr_says_is_what_kvcr_holds() -> None:
    name = "vllm-0.33.0-map-kvcr"
    truth, now = captured_truth(name), NOW
    stream = SourceStream(
        Source("r", 0, "m", "default", "m/x/default", "tcp://127.0.0.1:5557"), Connector(), lambda: now
    )
    recount, seen = SourceRecount("r", 0, Worker()), 0
    records: list[EventsRecord] = []
    for frames, (_, *held) in zip(captured_frames(name), truth["checkpoints"], strict=True):
        for record in [*stream.feed_all([frames], now), *stream.flush()]:
            recount.apply(len(records), record)
            records.append(record)
        entries = {medium: held.entries for medium, _, held in recount.held(now)}
        assert [entries.get(medium, 0) for medium in ("cpu", "kvcr:cpu", "kvcr:storage")] == held
        seen += 1
    assert seen == len(truth["checkpoints"]) > 30
    rows = rows_of(*records)
    assert {medium: row.blocks for medium, row in rows.items()} == {
        medium: len(blocks) for medium, blocks in truth["final"].items()
    }
    there: dict[str, set[int]] = {medium: set() for medium in rows}
    for event in (event for record in records for batch in record.batches for event in batch.events):
        if isinstance(event, Stored):
            there[event.medium] |= {*unpack_hashes(event.hashes)}
        elif isinstance(event, Removed):
            there[event.medium] -= {*unpack_hashes(event.hashes)}
    assert there == {medium: {*blocks} for medium, blocks in truth["final"].items()}
