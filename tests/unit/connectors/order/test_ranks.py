"""The data-parallel rank that batches say is compared with the settings, whichever way a batch takes."""

from __future__ import annotations

import msgspec
import pytest

from connectors.frames.bundle import Bundle, Frames
from connectors.order.stream import SourceStream
from connectors.sources import Source
from schemas.events import EventsRecord
from schemas.settings import Connector

NOW = 1_800_000_000.0
SOURCE = Source("r", 1, "m", "default", "m/x/default", "tcp://127.0.0.1:5557")


def message(seq: int, *rank: object) -> Frames:
    payload = msgspec.msgpack.encode([NOW, [["BlockRemoved", [seq], "GPU"]], *rank])
    return (b"", seq.to_bytes(8, "big"), payload)


def remarks(records: list[EventsRecord]) -> list[str]:
    return list(dict.fromkeys(remark for record in records for remark in record.remarks))


def told(*ranks: object, bundled: bool) -> list[str]:
    """Return what a stream of rank 1 remarks of batches that say these ranks (an empty tuple: none)."""
    stream = SourceStream(SOURCE, Connector(), lambda: NOW)
    messages = [
        message(seq, *(rank if isinstance(rank, tuple) else (rank,))) for seq, rank in enumerate(ranks)
    ]
    records = stream.feed_all(Bundle.of(messages) if bundled else messages, NOW)
    return remarks([*records, *stream.flush()])


@pytest.mark.parametrize("bundled", [False, True], ids=["one by one", "scanned"])
def test_ranks_are_compared(bundled: bool) -> None:
    assert told(1, 1, 1, 1, bundled=bundled) == []
    assert told((), (), None, "x", -1, bundled=bundled) == []
    assert told(0, 0, 0, bundled=bundled) == ["other_rank:0"]
    # What is no rank may be anything, and is not repeated.
    assert told(1, 1 << 16, 2**63, -1, None, "1", 1, bundled=bundled) == []
    assert told(2**16 - 1, bundled=bundled) == ["other_rank:65535"]
    assert told(1, (), 1, None, 1, bundled=bundled) == []
    assert sorted(told(1, 1, 2, 1, bundled=bundled)) == ["mixed_ranks", "other_rank:2"]
    assert len(told(*range(40), bundled=bundled)) == 8
