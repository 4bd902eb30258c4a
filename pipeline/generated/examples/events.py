"""Example records of the events topic: every kind of event."""

from __future__ import annotations

from pipeline.generated.examples.blocks import ANSWER, DOMAIN, INCARNATION, LINKS, PROMPT, START, packed
from schemas.events import (
    Accessed,
    Batch,
    Capacity,
    Cleared,
    Closed,
    EngineCounters,
    Event,
    EventsRecord,
    Gap,
    Opened,
    Removed,
    SourceStatus,
    Stored,
    Undecodable,
)

FINGERPRINT = 0x5DE1C8A7
"""Fingerprint of an invented payload."""


def events_record(*batches: Batch) -> EventsRecord:
    """Return a run of one source; the sequence numbers are those of its batches."""
    numbers = [batch.seq for batch in batches if batch.seq is not None]
    return EventsRecord(
        replica="vllm-0",
        model="qwen3-32b",
        hash_domain=DOMAIN,
        dp_rank=0,
        incarnation=INCARNATION,
        batches=list(batches),
        first_seq=numbers[0] if numbers else None,
        last_seq=numbers[-1] if numbers else None,
        engine="vllm",
        wire_era="array-12",
        last_fingerprint=FINGERPRINT if numbers else 0,
        role="decode",
    )


def batch(seq: int, *events: Event, engine_events: int | None = None, replayed: bool = False) -> Batch:
    """Return the engine's batch `seq`, published a quarter of a second after the one before."""
    ts = START + seq / 4
    received_at = ts + (2.0 if replayed else 0.0015)
    return Batch(
        seq=seq,
        ts=ts,
        received_at=received_at,
        events=list(events),
        engine_events=len(events) if engine_events is None else engine_events,
        replayed=replayed,
    )


def notice(at: float, event: Event) -> Batch:
    """Return a notice of the connector, `at` seconds after the start."""
    return Batch(seq=None, ts=START + at, received_at=START + at, events=[event])


def _prompt() -> Stored:
    return Stored(hashes=packed(*PROMPT), block_size=16, tokens=48)


def _answer() -> Stored:
    return Stored(hashes=packed(*ANSWER), block_size=16, tokens=32, parent=packed(PROMPT[-1]))


def _removals() -> Removed:
    return Removed(hashes=packed(ANSWER[1], ANSWER[0], PROMPT[2]))


def events_examples() -> dict[str, EventsRecord]:
    """Return {name: record}."""
    return _of_batches() | _of_what_is_rare()


def _of_batches() -> dict[str, EventsRecord]:
    prompt, answer, removals = _prompt(), _answer(), _removals()
    return {
        "run": events_record(
            notice(0.0, Opened(first_seq=0, complete=True, endpoint="tcp://127.0.0.1:5557")),
            batch(0, prompt),
            batch(1, answer),
            batch(2, removals, prompt, engine_events=4),
        ),
        "opened": events_record(
            notice(10.25, Opened(first_seq=41, complete=False, endpoint="tcp://127.0.0.1:5557")),
            batch(41, prompt),
        ),
        "stored": events_record(
            batch(3, prompt),
            batch(4, answer),
            batch(
                5,
                Stored(
                    hashes=packed(*PROMPT[:2]),
                    block_size=16,
                    tokens=32,
                    group_idx=1,
                    spec_kind="sliding_window",
                    sliding_window=4096,
                    lora="sql-adapter",
                    links=packed(*LINKS),
                ),
                Stored(hashes=packed(PROMPT[0]), block_size=0, medium="cpu", raw_medium="CPU_PINNED"),
            ),
        ),
        "removed": events_record(
            batch(
                6,
                removals,
                Removed(hashes=packed(PROMPT[1]), group_idx=1),
                Removed(hashes=packed(PROMPT[0]), medium="cpu", raw_medium="CPU_PINNED"),
                engine_events=5,
            )
        ),
        "cleared": events_record(batch(7, Cleared()), batch(8, prompt), batch(9, Cleared("cpu"))),
    }


def _of_what_is_rare() -> dict[str, EventsRecord]:
    prompt, answer, removals = _prompt(), _answer(), _removals()
    restarted = events_record(batch(9, removals, engine_events=3), notice(3.0, Closed(reason="restarted")))
    restarted.duplicates = 1
    return {
        "gap": events_record(
            batch(17, prompt),
            batch(18, answer, replayed=True),
            notice(6.5, Gap(first=19, last=24, reason="replay_truncated")),
            batch(25, removals, engine_events=3),
        ),
        "undecodable": events_record(
            batch(30, prompt, Undecodable(reason="nil_hash", seq=30), removals, engine_events=5),
            batch(31, Undecodable(reason="not_msgpack", seq=31), engine_events=0),
            notice(7.8, Undecodable(reason="bad_seq", count=2)),
            batch(
                32, Undecodable(reason="unknown_type", seq=32, event_type="BlockCompressed", medium="disk")
            ),
        ),
        "engine_counters": events_record(
            notice(
                5.0,
                EngineCounters(
                    prefix_cache_queries=1_048_576,
                    prefix_cache_hits=786_432,
                    capacity_blocks=27_000,
                    block_size=16,
                    kv_cache_usage=0.4375,
                    computed_tokens=131_072,
                    transferred_tokens=98_304,
                    reloaded_tokens=32_768,
                    generation_tokens=65_536,
                ),
            ),
        ),
        "capacity": events_record(
            batch(0, Capacity(medium="cpu", capacity_bytes=64 << 30)),
            batch(1, Stored(hashes=packed(PROMPT[0]), block_size=256, tokens=256, size_bytes=32 << 20)),
        ),
        "accessed": events_record(
            batch(2, Accessed(hashes=packed(PROMPT[0], PROMPT[0]))),
            batch(3, Accessed(packed(PROMPT[1]), "lmcache-l2-fs", hits=True, group_idx=1)),
        ),
        "source_status": events_record(notice(20.0, SourceStatus(connected=True))),
        "closed": restarted,
    }
