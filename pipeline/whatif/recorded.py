"""What a recording of engines' events says about other conditions: bounds only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import msgspec

from pipeline.errors import PipelineError
from pipeline.residency.partition import PartitionState
from pipeline.whatif.potential import AVOIDABLE, FleetFollower, Potential
from schemas.events import EventsRecord
from schemas.residency import ResidencyRecord
from schemas.settings import Worker

_RECORDS_BETWEEN_CUTS = 200


class NotKnown(PipelineError):
    """Events do not show what was asked for."""

    why: str
    """The reason, and what can be asked instead."""
    line = "{why}"


@dataclass(frozen=True, slots=True)
class RecordedFleet:
    """What was recorded."""

    sources: int
    """Caches: replicas times data-parallel ranks."""
    computing: int
    """Of these, caches that a router may send prompts to: all, or, in a fleet with prefill replicas, those of
    replicas that do not only decode."""
    incomplete: int
    """Caches that began before the recording or have gaps in it; the causes of their fills may be unknown."""
    potential: Potential
    among_computing: Potential
    """Of caches that a router may choose from, as if there were no others."""


@dataclass(frozen=True, slots=True)
class Saved:
    """Fills, in tokens, that other conditions would have saved.

    Blocks that decoding filled count like those of prefill, in both bounds, where the stream
    does not tell them apart.
    """

    at_least: int
    at_most: int


def follow(records: Iterable[EventsRecord], roles: Mapping[str, str]) -> RecordedFleet:
    """Apply the events as the replica agent and the fleet agent would; return what they find.

    `roles` has the roles by replica, where they are known.
    """
    replica, fleet = PartitionState(0, Worker(), shards=1), FleetFollower()
    decoding = _decoding(roles)
    computing = FleetFollower() if decoding else None
    now = 0.0
    seen: set[tuple[str, int]] = set()
    incomplete: set[tuple[str, int]] = set()

    def cut() -> None:
        for _, _, value in replica.cut(now).residency:
            record = msgspec.msgpack.decode(value, type=ResidencyRecord)
            fleet.add(record)
            if computing is not None:
                others = [said for said in record.sources if said.replica not in decoding]
                computing.add(msgspec.structs.replace(record, sources=others))

    for offset, record in enumerate(records):
        replica.apply(offset, record)
        now = record.batches[-1].received_at if record.batches else now
        name = record.replica, record.dp_rank
        seen.add(name)
        source = replica.sources[name]
        # Not at the end, which is too late: a clear makes trust complete that was not.
        if source.opened and source.overall_trust().trust != "complete":
            incomplete.add(name)
        if replica.next_offset % _RECORDS_BETWEEN_CUTS == 0:
            cut()
    cut()
    potential = fleet.potential()
    return RecordedFleet(
        len(seen),
        sum(name not in decoding for name, _ in seen),
        len(incomplete),
        potential,
        potential if computing is None else computing.potential(),
    )


def _decoding(roles: Mapping[str, str]) -> set[str]:
    """Return the replicas that no router sends prompts to: those that decode, beside some that prefill."""
    if "prefill" not in roles.values():
        return set()
    return {replica for replica, role in roles.items() if role == "decode"}


def saved(fleet: RecordedFleet, replicas: int, extra_tokens: int | None) -> Saved:
    """Return what so much more of each cache would have saved (None: endless), or one endless cache for all
    that compute prompts.

    Raises NotKnown for what only the requests would show.
    """
    one_for_all = replicas != fleet.sources
    if one_for_all and replicas != 1:
        raise NotKnown(
            f"cannot tell what {replicas} replicas would do: hits leave no events, so a recording does "
            f"not hold the requests; ask for the {fleet.sources} recorded, or for 1 (one cache for all)"
        )
    if one_for_all and extra_tokens is not None:
        raise NotKnown(
            "cannot tell what one bounded cache for all would save: hits leave no events, so a recording "
            "does not say what it would keep; ask for --replicas 1 with --capacity none"
        )
    potential = fleet.among_computing if one_for_all else fleet.potential
    # A clear would have emptied a larger cache as well.
    causes = AVOIDABLE if one_for_all else ("evicted", "peer_and_evicted")
    at_most = sum(potential.tokens[cause] for cause in (*causes, "unknown"))
    return Saved(potential.saved_tokens(extra_tokens), at_most)
