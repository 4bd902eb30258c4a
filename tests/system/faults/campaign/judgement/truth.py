"""Log and tables against what engines know of themselves: the truth, or less with the exact ranges said."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from schemas.events import Batch, Removed, Stored
from schemas.hashes import unpack_hashes
from tests.system.faults.campaign.engines.engine import Life, Operations, TroubledEngine
from tests.system.faults.campaign.judgement.log import Incarnation
from tests.system.faults.campaign.judgement.tables import Tables


@dataclass
class Verdict:
    """What was compared of one engine."""

    batches: int
    lost: int
    """Batches that are missing, each of them in a gap that the log names."""
    incarnations: int
    unknown: int
    """Incarnations into which a replay brought lies, so that only their end can be judged."""


def judge(engine: TroubledEngine, told: list[Incarnation], tables: Tables) -> Verdict:
    """Assert that the source's tables are its truth, or say what is missing exactly."""
    lives = {_content(operations): life for life in engine.lives for operations in life.operations.values()}
    last = [incarnation for incarnation in told if incarnation.batches][-1]
    lost = unknown = 0
    for incarnation in told:
        if not incarnation.batches:
            continue
        if _has_lies(incarnation, lives):
            assert incarnation is not last, (engine.name, incarnation.number, "the last life has lies")
            unknown += 1
            continue
        missing = _judge_incarnation(engine, incarnation, lives, tables)
        lost += len(missing)
        if incarnation is last and not engine.ended:
            _judge_last(engine, incarnation, missing, lives, tables)
    if engine.ended:
        assert tables.occupancy[engine.name] == (0, 0), engine.name
        # A connector that starts later reports on what may be a next life, of which nothing ever comes.
        assert last.closed == "silent", (engine.name, last.closed)
    got = sum(len(incarnation.batches) for incarnation in told)
    if not unknown:
        assert tables.health[engine.name] == (got, lost), (engine.name, tables.health[engine.name], got, lost)
    return Verdict(got, lost, len(told), unknown)


def _judge_incarnation(
    engine: TroubledEngine, incarnation: Incarnation, lives: dict[int, Life], tables: Tables
) -> set[int]:
    """Compare log and tables of one incarnation with the engine; return the numbers that are missing."""
    where = (engine.name, engine.trouble, incarnation.number)
    for life, numbers in _parts(engine, incarnation, lives):
        for seq in numbers:
            told = _operations(incarnation.batches[seq])
            assert told == _one_by_one(life.operations.get(seq, [])), (where, seq)
    wanted = set(range(incarnation.first_seq, incarnation.last_seq + 1))
    missing = wanted - incarnation.batches.keys()
    given_up = incarnation.given_up
    assert given_up <= wanted, (where, sorted(given_up - wanted))
    assert missing == given_up - incarnation.batches.keys(), (where, sorted(missing ^ given_up))
    # Whether it was the same life all the time, a buffer that is too short cannot say.
    unconfirmed = any(gap.reason == "unconfirmed" for gap in incarnation.gaps)
    trust = "degraded" if missing or unconfirmed else "partial" if incarnation.first_seq else "complete"
    row = tables.sources[engine.name, incarnation.number][:3]
    assert row == (incarnation.first_seq, incarnation.last_seq, trust), (where, row, incarnation.first_seq)
    return missing


def _judge_last(
    engine: TroubledEngine,
    incarnation: Incarnation,
    missing: set[int],
    lives: dict[int, Life],
    tables: Tables,
) -> None:
    """Compare what is resident now, and assert that nothing was given up that could be had."""
    where = (engine.name, engine.trouble, incarnation.number)
    parts = _parts(engine, incarnation, lives)
    life, _ = parts[-1]
    assert life is engine.lives[-1], (where, "the last life is not the last one told")
    assert incarnation.last_seq == life.last_seq, (where, incarnation.last_seq, life.last_seq)
    wrongly = sorted(seq for seq in missing if engine.obtainable(seq))
    assert not wrongly, (where, "given up and still there", wrongly)
    resident = _resident(part.operations[seq] for part, numbers in parts for seq in numbers)
    entries = resident.total(), len(resident)
    assert tables.occupancy[engine.name] == entries, (where, tables.occupancy[engine.name], entries)
    if not missing and not incarnation.first_seq:
        everything = _resident(life.operations[seq] for seq in sorted(life.operations))
        assert resident == everything, (where, resident, everything)


def _has_lies(incarnation: Incarnation, lives: dict[int, Life]) -> bool:
    found = [lives.get(_first_hash(batch)) for batch in incarnation.batches.values()]
    return any(life is None or life.lied for life in found)


def _parts(
    engine: TroubledEngine, incarnation: Incarnation, lives: dict[int, Life]
) -> list[tuple[Life, list[int]]]:
    """The numbers of each life in an incarnation: one life, with two exceptions that nobody can tell.

    One is a restarted engine whose short buffer had dropped the number of the last batch taken when it was
    asked for it. The other is one that answers no such question, and that had got beyond that number before
    its first batch came through. The log then says why nobody knows, right before the first batch of the new
    life.
    """
    parts: list[tuple[Life, list[int]]] = []
    for seq in sorted(incarnation.batches):
        life = lives[_first_hash(incarnation.batches[seq])]
        if not parts or life is not parts[-1][0]:
            if parts:
                gaps = [gap for gap in incarnation.gaps if gap.last == seq - 1]
                taken = parts[-1][1][-1]
                said = [(gap.first, gap.reason) for gap in gaps]
                if engine.answers:
                    untold = (
                        said in ([(taken + 1, "replay_truncated")], [(taken, "unconfirmed")])
                        and engine.forgets
                        and life.last_seq >= taken + engine.buffer
                    )
                else:
                    reason = "replay_not_configured" if engine.trouble == "no replay" else "replay_timeout"
                    untold = said == [(taken + 1, reason)]
                later = engine.lives.index(life) > engine.lives.index(parts[-1][0])
                mixed = (engine.name, engine.trouble, incarnation.number, "two lives", taken, seq, gaps)
                assert untold, mixed
                assert later, mixed
            parts.append((life, []))
        parts[-1][1].append(seq)
    return parts


def _resident(batches: Iterable[Operations]) -> Counter[int]:
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


def _content(operations: Operations) -> int:
    return operations[0][1][0]


def _first_hash(batch: Batch) -> int:
    first = batch.events[0]
    return unpack_hashes(first.hashes)[0] if isinstance(first, Stored) else 0


def _operations(batch: Batch) -> Operations:
    return _one_by_one(
        [
            ("stored" if isinstance(event, Stored) else "removed", unpack_hashes(event.hashes))
            for event in batch.events
            if isinstance(event, Stored | Removed)
        ]
    )


def _one_by_one(operations: Operations) -> Operations:
    return [(kind, (one,)) for kind, hashes in operations for one in hashes]
