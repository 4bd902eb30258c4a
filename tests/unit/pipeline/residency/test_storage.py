"""Media on which a block is a file: one copy however often it comes, and files outlive the engine."""

from __future__ import annotations

import pytest

from pipeline.residency.partition import PartitionState
from pipeline.verify.replica.source import SourceRecount
from schemas.events import Batch, EventsRecord, Opened, Stored
from schemas.rows import OccupancyRow
from schemas.settings import Worker

NOW = 1_800_000_000.0


def packed(*hashes: int) -> bytes:
    return b"".join(block.to_bytes(8, "big") for block in hashes)


def life(number: int, *events: Stored) -> EventsRecord:
    at = NOW + number
    batches = [Batch(None, at, at, [Opened(0, complete=True)]), Batch(0, at, at, [*events], len(events))]
    return EventsRecord("r", "m", "d", 0, number, batches, 0, 0, engine="vllm", may_reannounce=True)


def row_of(*lives: EventsRecord) -> OccupancyRow:
    state, recount = PartitionState(0, Worker(), shards=1), SourceRecount("r", 0, Worker())
    for offset, record in enumerate(lives):
        state.apply(offset, record)
        recount.apply(offset, record)
    [row] = [row for row in state.cut(NOW).rows if isinstance(row, OccupancyRow)]
    [(medium, _, held)] = list(recount.held(NOW))
    since = recount.trust.of(medium)
    assert (row.entries, row.blocks, row.trust) == (held.entries, held.blocks, since.trust)
    assert row.trust_since.timestamp() == since.at
    return row


@pytest.mark.parametrize("medium", ["storage", "fs", "obj"])
@pytest.mark.parametrize("size", [16, 0], ids=["blocks", "placeholders"])
def test_a_file_that_is_handed_over_again_is_one(medium: str, size: int) -> None:
    first = Stored(packed(11), size, size, None, medium)
    again = Stored(packed(12), size, size, packed(11), medium)
    row = row_of(life(1, first, again, again, again))
    assert (row.entries, row.blocks, row.tokens, row.store_only) == (2, 2, 2 * size, True)
    assert row.trust == "partial"


def test_what_a_new_engine_finds_there_is_not_known() -> None:
    row = row_of(
        life(1, Stored(packed(11), 16, 16, None, "storage")),
        life(2, Stored(packed(13), 16, 16, None, "storage")),
    )
    assert (row.entries, row.trust) == (1, "partial")
