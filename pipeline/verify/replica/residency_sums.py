"""What the residency topic must say of each session of a source, as sums over its changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from pipeline.verify.findings import Difference, Findings
from pipeline.verify.fleet.parsed import Columns
from schemas.residency import CLEARED, EVICTED, EXPIRED, FILLED, GENERATED, RETURNED, SUBSUMED

TABLE = "residency"
"""The name under which the topic is reported; it is no table."""
ANY_SESSION = 0
"""Instead of an incarnation, where sessions are not distinguished."""
_KINDS = {
    FILLED: "filled_blocks",
    GENERATED: "generated_blocks",
    RETURNED: "returned_blocks",
    EVICTED: "evicted_blocks",
    CLEARED: "cleared_blocks",
    EXPIRED: "expired_blocks",
    SUBSUMED: "subsumed_blocks",
}


class PoolOfSession(NamedTuple):
    """What a sum is about: a pool in one session of its source."""

    replica: str
    dp_rank: int
    incarnation: int
    hash_domain: str
    medium: str
    group_idx: int


@dataclass
class Resident:
    """A set of blocks, known by its size and the sum of its hashes."""

    blocks: int = 0
    hashes: int = 0

    def __add__(self, other: Resident) -> Resident:
        return Resident(self.blocks + other.blocks, self.hashes + other.hashes)

    def __sub__(self, other: Resident) -> Resident:
        return Resident(self.blocks - other.blocks, self.hashes - other.hashes)

    @classmethod
    def of(cls, hashes: Iterable[int]) -> Resident:
        """Return the set of these blocks."""
        every = list(hashes)
        return cls(len(every), sum(every))


@dataclass
class Changes:
    """Changes in any order: how many of each kind, and a sum of hashes over all that is said of each."""

    of_kind: Counter[int] = field(default_factory=Counter)
    said: int = 0

    def count_all(
        self, kind: int, blocks: Sequence[int], at: float, sizes: Iterable[int], stored: Iterable[int]
    ) -> None:
        """Add a change of each block, with its size and the tokens stored in the pool before."""
        self.of_kind[kind] += len(blocks)
        self.said += sum(
            [
                hash((kind, block, at, size, before))
                for block, size, before in zip(blocks, sizes, stored, strict=False)
            ]
        )

    def count_columns(self, columns: Columns) -> None:
        """Add the changes of a pool in a residency record."""
        for kind in _KINDS:
            self.of_kind[kind] += columns.kinds.count(kind)
        said = zip(columns.kinds, columns.hashes, columns.times, columns.sizes, columns.stored, strict=True)
        self.said += sum(map(hash, said))

    def __add__(self, other: Changes) -> Changes:
        return Changes(self.of_kind + other.of_kind, self.said + other.said)

    def copy(self) -> Changes:
        """Return a snapshot of the counts."""
        return Changes(Counter(self.of_kind), self.said)


@dataclass
class ResidencySums:
    """What the topic says of a pool in one session."""

    resident: Resident = field(default_factory=Resident)
    """At the end, less what earlier sessions had left."""
    changes: Changes | None = field(default_factory=Changes)
    """None where they depend on when checkpoints were made (two granularities)."""


def joined(
    one: dict[PoolOfSession, ResidencySums], other: dict[PoolOfSession, ResidencySums]
) -> dict[PoolOfSession, ResidencySums]:
    """Return the sum of both: a session may have been forgotten and then have gone on."""
    both = {**one, **other}
    for key in one.keys() & other.keys():
        first, second = one[key], other[key]
        changes = None
        if first.changes is not None and second.changes is not None:
            changes = first.changes + second.changes
        both[key] = ResidencySums(first.resident + second.resident, changes)
    return both


def of_any_session(
    parts: Iterable[Mapping[PoolOfSession, ResidencySums]],
) -> dict[PoolOfSession, ResidencySums]:
    """Return what is resident in each pool, added up over its sessions and these parts."""
    sums: dict[PoolOfSession, ResidencySums] = {}
    for part in parts:
        for key, of in part.items():
            added = sums.setdefault(key._replace(incarnation=ANY_SESSION), ResidencySums(changes=None))
            added.resident += of.resident
    return sums


def compare(
    wanted: dict[PoolOfSession, ResidencySums],
    has: dict[PoolOfSession, ResidencySums],
    findings: Findings,
    *,
    unreadable: str | None = None,
) -> None:
    """Compare what the events say with what the residency topic says.

    `unreadable`: why records of the topic cannot be read yet, if so. Sums that may lack them are late then.
    """
    for key in {**wanted, **has}:
        found = has.get(key, ResidencySums())
        expected = wanted.get(key, ResidencySums(changes=None if found.changes is None else Changes()))
        one, other = _figures(expected), _figures(found, exact=expected.changes is not None)
        columns = [column for column in one if one[column] != other[column]]
        remarks = () if columns else tuple(_remarks(expected, found))
        differs = bool(columns or remarks)
        if differs and unreadable is not None and key in wanted and _may_lack_records(expected, found):
            findings.late[TABLE, unreadable] += 1
            continue
        findings.compared[TABLE] += key in wanted
        if differs:
            findings.differ(
                Difference(
                    TABLE,
                    key._asdict(),
                    "differs" if key in wanted else "unexpected",
                    {column: one[column] for column in columns},
                    {column: other[column] for column in columns},
                    remarks,
                )
            )


def _figures(sums: ResidencySums, *, exact: bool = True) -> dict[str, int]:
    figures = {"resident_blocks": sums.resident.blocks}
    if exact and sums.changes is not None:
        figures |= {name: sums.changes.of_kind[kind] for kind, name in _KINDS.items()}
    return figures


def _remarks(expected: ResidencySums, found: ResidencySums) -> Iterator[str]:
    """Say in words what differs where all numbers are equal; a person cannot read sums of hashes."""
    if expected.resident.hashes != found.resident.hashes:
        yield "as many blocks are resident as the log says, but other ones"
    if expected.changes and found.changes and expected.changes.said != found.changes.said:
        yield "the changes differ in content: which blocks, when, of what size, or tokens stored before"


def _may_lack_records(expected: ResidencySums, found: ResidencySums) -> bool:
    """Return whether missing records would explain the difference: no kind of change is there too often."""
    if expected.changes is None or found.changes is None:
        return True
    missing = [expected.changes.of_kind[kind] - found.changes.of_kind[kind] for kind in _KINDS]
    return min(missing) >= 0 and any(missing)
