"""What log and tables have to say of troubled engines in the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from schemas.events import Batch, Closed, Gap, Opened, Removed, Stored
from schemas.hashes import unpack_hashes
from schemas.settings import Kafka
from tests.support.events_log import read_events
from tests.system.faults.soak.engines import Life, TroubledEngine


@dataclass
class Incarnation:
    """A life of an engine as the log tells it."""

    number: int
    first_seq: int = 0
    batches: dict[int, Batch] = field(default_factory=dict)
    gaps: list[Gap] = field(default_factory=list)
    closed: str = ""

    @property
    def given_up(self) -> set[int]:
        return {seq for gap in self.gaps for seq in range(gap.first, gap.last + 1)}

    @property
    def last_seq(self) -> int:
        return max([-1, *self.batches, *self.given_up])


def read(kafka: Kafka) -> dict[str, list[Incarnation]]:
    """The incarnations of every replica, in order."""
    found: dict[str, dict[int, Incarnation]] = {}
    for record in read_events(kafka):
        lives = found.setdefault(record.replica, {})
        life = lives.setdefault(record.incarnation, Incarnation(record.incarnation))
        for batch in record.batches:
            if batch.seq is not None:
                life.batches.setdefault(batch.seq, batch)
            for event in batch.events:
                if isinstance(event, Gap):
                    life.gaps.append(event)
                elif isinstance(event, Opened):
                    life.first_seq = event.first_seq
                elif isinstance(event, Closed):
                    life.closed = event.reason
    return {replica: [lives[number] for number in sorted(lives)] for replica, lives in found.items()}


def check(engine: TroubledEngine, told: list[Incarnation], tables: Tables) -> tuple[int, int]:
    """Assert that the source's tables are its truth, or say what is missing exactly; return (got, lost)."""
    lives = _lives_by_content(engine.lives)
    lost = 0
    for incarnation in told:
        if not incarnation.batches:
            continue
        where = (engine.name, engine.trouble, incarnation.number)
        parts = _parts(engine, incarnation, lives, where)
        life, _ = parts[-1]
        for part, numbers in parts:
            for seq in numbers:
                assert _operations(incarnation.batches[seq]) == _merged(part.operations.get(seq, [])), (
                    where,
                    seq,
                )
        wanted = set(range(incarnation.first_seq, incarnation.last_seq + 1))
        missing = wanted - incarnation.batches.keys()
        assert missing == incarnation.given_up & wanted, (where, missing ^ (incarnation.given_up & wanted))
        assert incarnation.given_up <= wanted, (where, incarnation.given_up - wanted)
        lost += len(missing)
        trust = "degraded" if missing else "partial" if incarnation.first_seq else "complete"
        assert tables.sources[engine.name, incarnation.number][:3] == (
            incarnation.first_seq,
            incarnation.last_seq,
            trust,
        ), (where, tables.sources[engine.name, incarnation.number])
        if life is engine.lives[-1] and not engine.ended:
            assert incarnation is told[-1], (where, [later.number for later in told])
            assert incarnation.last_seq == life.last_seq, (where, incarnation.last_seq, life.last_seq)
            wrongly = sorted(seq for seq in missing if engine.obtainable(seq))
            assert not wrongly, (where, wrongly)
            resident = _resident(part.operations[seq] for part, numbers in parts for seq in numbers)
            entries = resident.total(), len(resident)
            assert tables.occupancy[engine.name] == entries, (where, tables.occupancy[engine.name], entries)
            if trust == "complete":
                everything = _resident(life.operations[seq] for seq in sorted(life.operations))
                assert resident == everything, (where, resident, everything)
    if engine.ended:
        assert tables.occupancy[engine.name] == (0, 0), (engine.name, engine.trouble)
        # A connector that starts later reports on what may be a next life, of which nothing ever comes.
        [*_, last] = [incarnation for incarnation in told if incarnation.batches]
        assert last.closed == "silent", (engine.name, engine.trouble, last.closed)
    got = sum(len(incarnation.batches) for incarnation in told)
    health = tables.health[engine.name]
    assert health == (got, lost), (engine.name, engine.trouble, health, (got, lost))
    return got, lost


def _parts(
    engine: TroubledEngine, incarnation: Incarnation, lives: dict[int, Life], where: tuple[str, str, int]
) -> list[tuple[Life, list[int]]]:
    """The numbers of each life in an incarnation: one life, with one exception that nobody can tell.

    That is a restarted engine whose short buffer had dropped the number of the last batch taken when it was
    asked for it. The log then says that it did not reach back, right before the first batch of the new life.
    """
    parts: list[tuple[Life, list[int]]] = []
    for seq in sorted(incarnation.batches):
        life = lives[_content(incarnation.batches[seq])]
        if not parts or life is not parts[-1][0]:
            if parts:
                gaps = [gap for gap in incarnation.gaps if gap.last == seq - 1]
                taken = parts[-1][1][-1]
                untold = (
                    [(gap.first, gap.reason) for gap in gaps] == [(taken + 1, "replay_truncated")]
                    and engine.forgets
                    and life.last_seq >= taken + engine.buffer
                )
                later = engine.lives.index(life) > engine.lives.index(parts[-1][0])
                mixed = (where, "two lives", taken, seq, gaps)
                assert untold, mixed
                assert later, mixed
            parts.append((life, []))
        parts[-1][1].append(seq)
    return parts


def _resident(batches: Iterable[list[tuple[str, tuple[int, ...]]]]) -> Counter[int]:
    """Copies of each hash after these batches; removals of what is not there change nothing."""
    copies: Counter[int] = Counter()
    for operations in batches:
        for kind, hashes in operations:
            for one in hashes:
                if kind == "stored":
                    copies[one] += 1
                elif copies[one]:
                    copies[one] -= 1
    return +copies


@dataclass
class Tables:
    """What the tables say in the end."""

    sources: dict[tuple[str, int], tuple[int, int, str, str]]
    """(replica, incarnation) to first_seq, last_seq, trust and closed_reason."""
    occupancy: dict[str, tuple[int, int]]
    """Replica to entries and blocks at its last window."""
    health: dict[str, tuple[int, int]]
    """Replica to batches and lost batches over all windows."""

    @classmethod
    def of(cls, laboratory: Any) -> Tables:
        database = laboratory.settings.clickhouse.database
        sources = laboratory.query(
            "SELECT replica, incarnation, first_seq, last_seq, trust, closed_reason "
            f"FROM {database}.sources FINAL"
        )
        occupancy = laboratory.query(
            f"SELECT replica, argMax(entries, window), argMax(blocks, window) "
            f"FROM {database}.occupancy_10s FINAL GROUP BY replica"
        )
        health = laboratory.query(
            f"SELECT replica, sum(batches), sum(lost_batches) FROM {database}.stream_health_10s FINAL "
            "GROUP BY replica"
        )
        return cls(
            {row[:2]: row[2:] for row in sources},  # type: ignore[misc]
            {row[0]: row[1:] for row in occupancy},  # type: ignore[misc]
            {row[0]: row[1:] for row in health},  # type: ignore[misc]
        )


def _lives_by_content(lives: Iterable[Life]) -> dict[Any, Life]:
    return {
        operations[0][1][0]: life for life in lives for operations in life.operations.values() if operations
    }


def _content(batch: Batch) -> int:
    first = batch.events[0]
    assert isinstance(first, Stored)
    return unpack_hashes(first.hashes)[0]


def _operations(batch: Batch) -> list[tuple[str, tuple[int, ...]]]:
    return _merged(
        [
            ("stored" if isinstance(event, Stored) else "removed", unpack_hashes(event.hashes))
            for event in batch.events
            if isinstance(event, Stored | Removed)
        ]
    )


def _merged(operations: list[tuple[str, tuple[int, ...]]]) -> list[tuple[str, tuple[int, ...]]]:
    return [(kind, (one,)) for kind, hashes in operations for one in hashes]
