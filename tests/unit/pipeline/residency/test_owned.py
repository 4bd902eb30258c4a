"""Media of an owner other than the engine: each block once, apart from the engine's own, also in clears."""

from __future__ import annotations

import pytest

from connectors.order.stream import SourceStream
from connectors.sources import Source
from pipeline.verify.replica.source import SourceRecount
from schemas.events import Cleared, Event, EventsRecord, Gap, Removed, Stored
from schemas.rows import OccupancyRow
from schemas.settings import Connector, Worker
from tests.support.inputs.captures import captured_frames, captured_truth
from tests.support.inputs.event_records import batch, held_after, notice, opened, record
from tests.support.inputs.packed import packed
from tests.support.replica_agent import ReplicaAgent, rows_of

NOW = 1_800_000_000.0
MEDIA = ("gpu", "cpu", "kvcr:cpu", "kvcr:storage", "remote:storage", "other:cpu")


def life(number: int, *events: Event, lost: bool = False) -> EventsRecord:
    at = NOW + number
    gap = [notice(at, Gap(1, 2, "not_replayed"))] if lost else []
    last = batch(3 if lost else 1, at, *events)
    return record(opened(at), batch(0, at), *gap, last, life=number, engine="vllm")


def rows_by_medium(*lives: EventsRecord, clears: str = "gpu") -> dict[str, OccupancyRow]:
    """Return the rows by medium, which a recount agrees with."""
    worker = Worker(clear_scope="all" if clears == "all" else "gpu")
    agent, recount = ReplicaAgent(worker), SourceRecount("r", 0, worker)
    agent.apply(*lives)
    for offset, life in enumerate(lives):
        recount.apply(offset, life)
    rows = {row.medium: row for row in rows_of(agent.cut(NOW), OccupancyRow)}
    held = {medium: held for medium, _, held in recount.held(NOW)}
    assert held.keys() == rows.keys()
    for medium, row in rows.items():
        since = recount.trust.of(medium)
        counted = held[medium]
        assert (row.entries, row.blocks, row.trust) == (counted.entries, counted.blocks, since.trust)
        assert row.trust_since.timestamp() == since.at
    return rows


def everywhere(block: int) -> list[Event]:
    return [Stored(packed(block), 16, 16, None, medium) for medium in MEDIA]


def test_a_block_that_its_owner_repeats_is_one_and_leaves_at_once() -> None:
    store, second = (Stored(packed(block), 16, 16, None, "kvcr:cpu") for block in (1, 2))
    rows = rows_by_medium(life(1, *everywhere(1), store, store, second, Removed(packed(1), "kvcr:cpu")))
    owned = rows["kvcr:cpu"]
    assert (owned.entries, owned.store_only, owned.trust) == (1, False, "partial")
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
    rows = rows_by_medium(life(1, *everywhere(1), Cleared(scope), lost=lost), clears=clears)
    assert {medium for medium, row in rows.items() if not row.entries} == emptied
    for medium, row in rows.items():
        best = "partial" if ":" in medium else "complete"
        assert row.trust == (best if medium in emptied or not lost else "degraded"), medium


def test_what_others_own_outlives_the_engine() -> None:
    rows = rows_by_medium(life(1, *everywhere(1)), life(2, Stored(packed(2), 16, 16, None, "kvcr:cpu")))
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
        for told in [*stream.feed_all([frames], now), *stream.flush()]:
            recount.apply(len(records), told)
            records.append(told)
        entries = {medium: held.entries for medium, _, held in recount.held(now)}
        assert [entries.get(medium, 0) for medium in ("cpu", "kvcr:cpu", "kvcr:storage")] == held
        seen += 1
    assert seen == len(truth["checkpoints"]) > 30
    rows = rows_by_medium(*records)
    assert {medium: row.blocks for medium, row in rows.items()} == {
        medium: len(blocks) for medium, blocks in truth["final"].items()
    }
    there = held_after(records)
    assert {medium: there.get(medium, set()) for medium in rows} == {
        medium: {*blocks} for medium, blocks in truth["final"].items()
    }
