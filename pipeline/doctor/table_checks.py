"""Checks of the tables: reachable, migrated, written, and in step with the log. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from pipeline.doctor.facts import Facts, SourceId, StoreFacts
from pipeline.doctor.finding import Finding
from pipeline.doctor.naming import clock, of_sources, source_name

STALE_SECONDS = 60.0
"""Rows follow their events within a few seconds."""
POSITION_SECONDS = 60.0
"""A connector writes all its positions every ten seconds: older ones are of a connector that ended."""
APART_SECONDS = 30.0
"""Difference of clocks that matters: readers of the last minutes would miss that much."""
LOOKED_BACK_SECONDS = 3600.0


def table_findings(facts: Facts) -> Iterator[Finding]:
    """Yield what is wrong with the tables as such."""
    store = facts.store
    if not store.address:
        return
    if store.unavailable is not None:
        yield Finding(
            "store-unavailable",
            "problem",
            f"ClickHouse at {store.address} cannot be used: {store.unavailable}",
            f"{store.advice}; rows wait in Kafka meanwhile",
        )
        return
    yield from _unusable(store)
    newest = facts.kafka.newest_record_at
    if newest is not None and store.written_at is not None and newest - store.written_at > STALE_SECONDS:
        yield Finding(
            "tables-stale",
            "problem",
            f"events arrive, but nobody has written a row for {facts.at - store.written_at:.0f} s",
            "does `kvlens work` run, and does its log complain about ClickHouse?",
        )
    yield from _time_findings(facts)
    behind = []
    for source, seen in sorted(facts.kafka.log.items()):
        if seen.settled is not None and _shown(facts, source) < seen.settled:
            behind.append(source_name(source))
    if behind and store.whole:
        yield Finding(
            "rows-behind-log",
            "problem",
            "the tables lack records that the log had some seconds ago",
            "see consumer-lag and no-worker; if nothing waits, rows were lost: `kvlens verify` compares",
            tuple(behind),
        )
    yield from _lost(facts)


def _unusable(store: StoreFacts) -> Iterator[Finding]:
    """Yield why tables are not those of this version, or could not be looked at."""
    if store.migrations_missing:
        yield Finding(
            "migration-missing",
            "problem",
            "tables or views are not those of this version of kvlens",
            "run `kvlens migrate`",
            store.migrations_missing,
        )
    if store.migrations_changed:
        yield Finding(
            "migration-changed",
            "problem",
            "the tables are not those of this version of kvlens, and it cannot change them",
            "use the version of kvlens that made them, or an empty database and `kvlens state rebuild`",
            store.migrations_changed,
        )
    for what, answer in store.unanswered.items():
        if not store.migrations_missing:
            yield Finding(
                "store-unanswered", "unknown", f"cannot look at {what}: {answer.reason}", answer.advice
            )
    if store.late:
        yield Finding(
            "store-busy",
            "unknown",
            f"ClickHouse at {store.address} has too much to do; not looked at: {', '.join(store.late)}",
            "look again later; if it stays, give it more CPU or memory, or ask for shorter ranges",
        )


def _shown(facts: Facts, source: SourceId) -> tuple[int, int]:
    """Return incarnation and sequence number of the newest batch that the tables show of a source."""
    row, session = facts.store.health.get(source), facts.store.sessions.get(source)
    return max(
        (row.incarnation, row.last_seq) if row else (0, -1),
        (session.incarnation, session.last_seq) if session else (0, -1),
    )


def _lost(facts: Facts) -> Iterator[Finding]:
    """Yield what connectors have published, the tables lack, and no waiting record can still bring."""
    kafka, store = facts.kafka, facts.store
    waiting = {
        number: count
        for group in kafka.groups
        if not group.rare_checkpoints
        for number, count in group.waiting.items()
    }
    lost = {
        source: f"published to {position.settled[1]}, tables to {_shown(facts, source)[1]}"
        for source, position in sorted(kafka.positions.items())
        if position.settled is not None
        and facts.at - position.written_at <= POSITION_SECONDS
        and waiting.get(position.partition) == 0
        and _shown(facts, source) < position.settled
    }
    if not store.unanswered and not store.migrations_missing:
        yield from of_sources(
            "records-lost",
            "problem",
            "batches were published, no record waits, and the tables do not have them",
            "retention removed records before a worker read them: raise retention.ms of the events topic, or "
            "run more workers; only clearing the engine's cache or restarting it repairs the figures",
            lost,
        )


def _time_findings(facts: Facts) -> Iterator[Finding]:
    """Yield why existing rows are outside the ranges that readers ask for, which end now."""
    store = facts.store
    if store.clock is not None and abs(store.clock) > APART_SECONDS:
        way = "ahead of" if store.clock > 0 else "behind"
        yield Finding(
            "clocks-differ",
            "problem",
            f"the clock of ClickHouse is {abs(store.clock):.0f} s {way} the one here: `now` is not the same",
            "keep the clocks of all machines together (NTP)",
        )
    if store.newest_window is None or store.written_at is None:
        return
    now = facts.at + (store.clock or 0.0)
    newest = clock(store.newest_window)
    if store.newest_window - now > APART_SECONDS:
        yield Finding(
            "rows-in-future",
            "problem",
            f"the newest row is of {newest} UTC, {store.newest_window - now:.0f} s ahead of ClickHouse",
            "keep the clocks of engines, connectors and ClickHouse together (NTP)",
        )
    elif now - store.written_at <= STALE_SECONDS and now - store.newest_window > LOOKED_BACK_SECONDS:
        yield Finding(
            "rows-old",
            "problem",
            f"rows are written, but the newest one is of {newest} UTC: readers of the last hour see nothing",
            "does a worker catch up (consumer-lag)? Else the clock of engines or connectors is behind (NTP)",
        )
