"""What a recording of engines' events says about other conditions: bounds only."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from pipeline.errors import PipelineError
from pipeline.residency.partition import PartitionState
from pipeline.whatif.potential import AVOIDABLE, FleetFigures, Potential
from schemas.events import EventsRecord
from schemas.residency import ResidencyRecord
from schemas.settings import Worker

_RECORDS_BETWEEN_CUTS = 200


class NotKnown(PipelineError):
    """Events do not say."""

    why: str
    """And what can be asked instead."""
    line = "{why}"


@dataclass(frozen=True, slots=True)
class RecordedFleet:
    """What was recorded."""

    sources: int
    """Caches: replicas times data-parallel ranks."""
    incomplete: int
    """Caches that began before the recording or have gaps in it; the causes of their fills may be unknown."""
    potential: Potential


@dataclass(frozen=True, slots=True)
class Saved:
    """Fills, in tokens, that other conditions would have saved.

    Blocks that decoding filled count like those of prefill, in both bounds, where the stream
    does not tell them apart.
    """

    at_least: int
    at_most: int


def follow(records: Iterable[EventsRecord]) -> RecordedFleet:
    """Apply the events as the replica agent and the fleet agent would; return what they find."""
    replica, fleet = PartitionState(0, Worker(), shards=1), FleetFigures()
    now = 0.0
    seen: set[tuple[str, int]] = set()
    incomplete: set[tuple[str, int]] = set()

    def cut() -> None:
        for _, _, value in replica.cut(now).residency:
            fleet.add(msgspec.msgpack.decode(value, type=ResidencyRecord))

    for offset, record in enumerate(records):
        replica.apply(offset, record)
        now = record.batches[-1].received_at if record.batches else now
        name = record.replica, record.dp_rank
        seen.add(name)
        source = replica.sources[name]
        # At the end it is too late to ask: a clear makes complete what was not.
        if source.opened and source.overall_trust().trust != "complete":
            incomplete.add(name)
        if replica.next_offset % _RECORDS_BETWEEN_CUTS == 0:
            cut()
    cut()
    return RecordedFleet(len(seen), len(incomplete), fleet.potential())


def saved(fleet: RecordedFleet, replicas: int, extra_tokens: int | None) -> Saved:
    """Return what so much more of each cache would have saved (None: endless), or one endless cache for all.

    Raises NotKnown for what would take the requests to know.
    """
    tokens = fleet.potential.tokens
    at_least = fleet.potential.saved_tokens(extra_tokens)
    if replicas == fleet.sources:
        causes: tuple[str, ...] = ("evicted", "peer_and_evicted")
    elif replicas != 1:
        raise NotKnown(
            f"cannot tell what {replicas} replicas would do: hits leave no events, so a recording does "
            f"not hold the requests; ask for the {fleet.sources} recorded, or for 1 (one cache for all)"
        )
    elif extra_tokens is not None:
        raise NotKnown(
            "cannot tell what one bounded cache for all would save: hits leave no events, so a recording "
            "does not say what it would keep; ask for --replicas 1 with --capacity none"
        )
    else:
        causes = AVOIDABLE
    return Saved(at_least, sum(tokens[cause] for cause in (*causes, "unknown")))
