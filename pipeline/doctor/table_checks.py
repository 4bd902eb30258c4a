"""What the tables' side says: reachable, migrated, written, and in step with the log. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from pipeline.doctor.facts import Facts
from pipeline.doctor.finding import Finding

STALE_SECONDS = 60.0
"""Rows follow their events within a few seconds."""


def table_findings(facts: Facts) -> Iterator[Finding]:
    """Yield what is wrong with the tables as such."""
    store = facts.store
    if store.unavailable is not None:
        yield Finding(
            "store-unavailable",
            "problem",
            f"ClickHouse at {store.address} cannot be used: {store.unavailable}",
            "check clickhouse.url, the credentials, and that it runs; rows wait in Kafka meanwhile",
        )
        return
    if store.migrations_missing:
        yield Finding(
            "migration-missing",
            "problem",
            "the tables are older than this version of kvlens",
            "run `kvlens migrate`",
            store.migrations_missing,
        )
    if store.migrations_changed:
        yield Finding(
            "migration-changed",
            "problem",
            "migrations changed after they were applied",
            "use the version of kvlens that made the tables, or another database",
            store.migrations_changed,
        )
    for what, reason in store.unanswered.items():
        if not store.migrations_missing:
            yield Finding(
                "store-unanswered",
                "unknown",
                f"cannot look at {what}: {reason}",
                "check the rights of clickhouse.username",
            )
    if store.late:
        yield Finding(
            "store-busy",
            "unknown",
            f"ClickHouse at {store.address} has too much to do; not looked at: {', '.join(store.late)}",
            "look again later; if it stays, give it more CPU or memory, or ask for shorter ranges",
        )
    newest = facts.kafka.newest_record_at
    if newest is not None and store.written_at is not None and newest - store.written_at > STALE_SECONDS:
        yield Finding(
            "tables-stale",
            "problem",
            f"events arrive, but nobody has written a row for {facts.at - store.written_at:.0f} s",
            "does `kvlens work` run, and does its log complain about ClickHouse?",
        )
    behind = []
    for source, seen in sorted(facts.kafka.log.items()):
        row = store.health.get(source)
        life = store.lives.get(source)
        shown = max(
            (row.incarnation, row.last_seq) if row else (0, -1),
            (life.incarnation, life.last_seq) if life else (0, -1),
        )
        if seen.settled is not None and shown < seen.settled:
            behind.append(f"{source[0]}/{source[1]}")
    if behind and store.whole:
        yield Finding(
            "rows-behind-log",
            "problem",
            "the tables lack records that the log had some seconds ago",
            "see consumer-lag and no-worker; if nothing waits, rows were lost: `kvlens verify` compares",
            tuple(behind),
        )
