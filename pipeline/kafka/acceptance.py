"""Whether a decoded record may be applied, as far as the record alone shows.

Types of `schemas` bound every number and name; here is what no type can express. The agents check it before
they change anything, and the recount checks the same, so that both leave out the same records.
"""

from __future__ import annotations

import struct

from connectors.kafka.topics import partition_of
from pipeline.kafka.decoding import Headers, decode_choice, decode_events, decode_residency
from pipeline.kafka.refusal import RecordRefused, SourceName
from schemas.choices import ChoiceRecord
from schemas.events import LATEST, EventsRecord, Gap
from schemas.hashes import HASH_BYTES
from schemas.reasons import SetAsideReason
from schemas.residency import FILLS, KINDS, LATEST_CHANGE, Decisions, ResidencyChanges, ResidencyRecord

NOT_APPLICABLE = "it decodes, but says what cannot be"
CHOICE_DAY_SECONDS = 86_400.0


def accepted_events(value: bytes | None, headers: Headers, key: bytes | None) -> EventsRecord:
    """Return the record, decoded and fit to be applied. Raises RecordRefused."""
    record = decode_events(value, headers, key)
    if (reason := events_refusal(record)) is not None:
        raise RecordRefused(reason, NOT_APPLICABLE, events_source(record))
    return record


def accepted_residency(value: bytes | None, headers: Headers, key: bytes | None) -> ResidencyRecord:
    """Return the record, decoded and fit to be applied. Raises RecordRefused."""
    record = decode_residency(value, headers, key)
    if (reason := residency_refusal(record)) is not None:
        raise RecordRefused(reason, NOT_APPLICABLE, residency_sources(record))
    return record


def accepted_choice(value: bytes | None, headers: Headers, key: bytes | None) -> ChoiceRecord:
    """Return the record, decoded and fit for a row. Raises RecordRefused."""
    record = decode_choice(value, headers, key)
    if record.chosen_tokens > record.best_tokens:
        raise RecordRefused("bad_choice", NOT_APPLICABLE, ())
    return record


def require_time_of_the_log(record: ChoiceRecord, written_at: float) -> None:
    """Raise RecordRefused where a choice is more than a day from its record: its table is partitioned by day.

    `written_at`: the log's time of the record, in seconds since the epoch; 0 or less where it has none.
    """
    if written_at > 0 and abs(record.time - written_at) > CHOICE_DAY_SECONDS:
        raise RecordRefused("bad_time", NOT_APPLICABLE, ())


def events_source(record: EventsRecord) -> tuple[SourceName, ...]:
    """Return the source of a record."""
    return (SourceName(record.replica, record.dp_rank),)


def is_misplaced(record: EventsRecord, partition: int, partitions: int) -> bool:
    """Return whether a record is not in the partition of the events topic that its replica belongs in."""
    return partition_of(record.replica, partitions) != partition


def residency_sources(record: ResidencyRecord) -> tuple[SourceName, ...]:
    """Return the sources of which a record has changes."""
    return tuple(SourceName(source.replica, source.dp_rank) for source in record.sources)


def events_refusal(record: EventsRecord) -> SetAsideReason | None:
    """Return why a record of the events topic must be set aside; None if it may be applied.

    Only notices are looked at: whatever the clock of an engine says, batches have a time of receipt.
    """
    for batch in record.batches:
        if batch.seq is None:
            if not 0 <= batch.ts <= LATEST:
                return "bad_time"
            for event in batch.events:
                if type(event) is Gap and event.first > event.last:
                    return "backward_gap"
    return None


def times_are_sane(packed: bytes) -> bool:
    """Return whether all of these little-endian f64 are moments that a clock may show."""
    return all(0 <= at <= LATEST_CHANGE for (at,) in struct.iter_unpack("<d", packed))


def residency_refusal(record: ResidencyRecord) -> SetAsideReason | None:
    """Return why a record of the residency topic must be set aside; None if it may be applied.

    Compiled loops read its columns without looking at their lengths.
    """
    if record.decisions is not None and not are_decisions(record.decisions):
        return "bad_decision"
    for source in record.sources:
        for changes in source.changes:
            if not is_even(changes):
                return "uneven_columns"
            if changes.kinds.translate(None, KINDS) or not times_are_sane(changes.times):
                return "bad_change"
            codes = struct.unpack(f"<{len(changes.lora_codes) // 2}H", changes.lora_codes)
            if max(codes, default=0) > len(changes.loras):
                return "bad_change"
    return None


def is_even(changes: ResidencyChanges) -> bool:
    """Return whether the columns have an entry for each change, or for each fill, where they have any."""
    count, odd = divmod(len(changes.hashes), HASH_BYTES)
    fills = sum(map(changes.kinds.count, FILLS))
    return (
        not odd
        and len(changes.kinds) == count
        and len(changes.times) == 8 * count
        and len(changes.block_sizes) == 4 * count
        and len(changes.stored) in (0, 4 * count)
        and len(changes.roots) in (0, 8 * fills)
        and len(changes.depths) in (0, 2 * fills)
        and len(changes.lora_codes) in (0, 2 * fills)
        and len(changes.ends) in (0, 8 * fills)
    )


def are_decisions(decisions: Decisions) -> bool:
    """Return whether there is a decision for each run, 0 or 1."""
    return len(decisions.runs) == 8 * len(decisions.known) and not decisions.known.translate(None, b"\0\1")
