"""What the fleet agent finds of a fleet: why its blocks were filled, and what more cache would have saved."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import zip_longest

from pipeline.fleet.causes import CAUSES, FILL_CAUSES
from pipeline.fleet.state import FleetState
from schemas.fleet_rows import CapacityCurveRow, FillsRow
from schemas.residency import ResidencyRecord
from schemas.rows import Row
from schemas.settings import Fleet

PREFILL = tuple(cause for cause in FILL_CAUSES if cause not in ("promoted", "transferred", "generated"))
"""Causes of what was computed for prompts, or may have been: the rest came from a lower tier, by transfer or
from decoding."""
AVOIDABLE_HERE = ("evicted", "peer_and_evicted", "cleared")
"""Fills that an endless cache of each replica would have saved at most (docs/figures.md)."""
AVOIDABLE = (*AVOIDABLE_HERE, "peer", "evicted_elsewhere")
"""Fills that one endless cache for all would have saved at most."""

_EVERYTHING = Fleet(horizon_seconds=1e15, max_ghosts=1 << 30, hot_prefixes=0)
"""No loss is forgotten: what is played is finite. Of prefixes nothing is asked."""


@dataclass(slots=True)
class Potential:
    """Fills of a fleet by cause; the sums behind `hit_potential` and `capacity_gain`."""

    blocks: Counter[str] = field(default_factory=Counter)
    tokens: Counter[str] = field(default_factory=Counter)
    needed: list[int] = field(default_factory=list)
    """Tokens filled again for which 2**k more tokens of each cache suffice, by k."""

    @property
    def filled_tokens(self) -> int:
        return sum(self.tokens[cause] for cause in FILL_CAUSES)

    @property
    def prefill_tokens(self) -> int:
        return sum(self.tokens[cause] for cause in PREFILL)

    def saved_tokens(self, extra_tokens: int | None) -> int:
        """Return at least how many tokens so much more of each cache would have saved; None: endless."""
        return sum(
            tokens
            for exponent, tokens in enumerate(self.needed)
            if extra_tokens is None or 1 << exponent <= extra_tokens
        )


class FleetFollower:
    """Follows residency records of one shard as the fleet agent does, and forgets nothing."""

    def __init__(self) -> None:
        self._state = FleetState(0, _EVERYTHING, carry_seconds=0.0)

    def add(self, record: ResidencyRecord) -> None:
        """Apply the next record."""
        self._state.apply(self._state.next_offset, record)

    def potential(self) -> Potential:
        """Return the sums over all records; can be called once."""
        return summed(self._state.cut(0.0).rows)


def summed(rows: Iterable[Row]) -> Potential:
    """Add up rows of different windows, replicas and hash domains, as `hit_potential` does.

    Of a replica with several KV-cache groups only the one that filled most tokens counts, of equal ones the
    first.
    """
    groups: defaultdict[tuple[str, str], defaultdict[int, Potential]]
    groups = defaultdict(lambda: defaultdict(Potential))
    for row in rows:
        if isinstance(row, FillsRow):
            group = groups[row.hash_domain, row.replica][row.group_idx]
            group.blocks.update({cause: getattr(row, f"{cause}_blocks") for cause in CAUSES})
            group.tokens.update({cause: getattr(row, f"{cause}_tokens") for cause in CAUSES})
        elif isinstance(row, CapacityCurveRow):
            group = groups[row.hash_domain, row.replica][row.group_idx]
            group.needed = _added(group.needed, row.needed_hist)
    total = Potential()
    for each in groups.values():
        largest = max((each[number] for number in sorted(each)), key=lambda group: group.filled_tokens)
        total.blocks.update(largest.blocks)
        total.tokens.update(largest.tokens)
        total.needed = _added(total.needed, largest.needed)
    return total


def _added(one: list[int], other: list[int]) -> list[int]:
    return [sum(pair) for pair in zip_longest(one, other, fillvalue=0)]
