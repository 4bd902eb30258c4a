"""What the residency topic has to tell of each life of a source, as sums over its changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pipeline.verify.findings import Difference, Findings
from schemas.residency import CLEARED, EVICTED, EXPIRED, FILLED, SUBSUMED

TABLE = "residency"
"""Not a table: the name under which the topic is reported."""
_KINDS = {
    FILLED: "filled_blocks",
    EVICTED: "evicted_blocks",
    CLEARED: "cleared_blocks",
    EXPIRED: "expired_blocks",
    SUBSUMED: "subsumed_blocks",
}


class PoolOfLife(NamedTuple):
    """What a sum is about."""

    replica: str
    dp_rank: int
    incarnation: int
    hash_domain: str
    medium: str
    group_idx: int


@dataclass
class Resident:
    """A set of blocks, told by its size and the sum of its hashes."""

    blocks: int = 0
    hashes: int = 0

    @classmethod
    def of(cls, hashes: Iterable[int]) -> Resident:
        """Return that of these blocks."""
        every = list(hashes)
        return cls(len(every), sum(every))


@dataclass
class Changes:
    """Changes in any order: how many of each kind, and a sum over all that is said of each."""

    of_kind: Counter[int] = field(default_factory=Counter)
    said: int = 0

    def count(self, kind: int, block: int, at: float, size: int, stored: int | None) -> None:
        """Add a change; `stored`: tokens stored in the pool before."""
        self.of_kind[kind] += 1
        self.said += hash((kind, block, at, size, stored))


@dataclass
class Told:
    """What is told of a pool in one life."""

    resident: Resident = field(default_factory=Resident)
    """At the end."""
    changes: Changes | None = field(default_factory=Changes)
    """None where they depend on when checkpoints were made (two granularities)."""


def compare(wanted: dict[PoolOfLife, Told], has: dict[PoolOfLife, Told], findings: Findings) -> None:
    """Compare what the events say with what the residency topic tells."""
    findings.compared[TABLE] += len(wanted)
    for key in {**wanted, **has}:
        expected, found = wanted.get(key, Told()), has.get(key, Told())
        exact = expected.changes is not None
        one, other = _figures(expected, exact=exact), _figures(found, exact=exact)
        columns = [column for column in one if one[column] != other[column]]
        if columns:
            findings.differ(
                Difference(
                    TABLE,
                    key._asdict(),
                    "differs" if key in wanted else "unexpected",
                    {column: one[column] for column in columns},
                    {column: other[column] for column in columns},
                )
            )


def _figures(told: Told, *, exact: bool) -> dict[str, Any]:
    figures = {"resident_blocks": told.resident.blocks, "resident_hashes": told.resident.hashes}
    if exact and told.changes is not None:
        figures |= {name: told.changes.of_kind[kind] for kind, name in _KINDS.items()}
        figures["said"] = told.changes.said
    return figures
