"""Which sources hash alike, as far as the first blocks of their chains show it.

Two sources that share any block share the first block of its chain. So first blocks are enough, and every
shard of the hash space sees those of all chains that reach into it.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Final, NamedTuple

import numpy as np

from connectors.process.compiled import compiled
from pipeline.fleet.kernel.columns import Changes
from pipeline.fleet.kernel.tables import I64, U32, U64, doubled, mapped
from pipeline.fleet.packing import Packed, Table, fields_of, put_into, rows_of
from schemas.fleet_checkpoints import FleetHead, FleetStanding, TableName
from schemas.residency import SourceChanges

FIRST: Final = np.dtype(
    [
        # First block of a chain; 0: a free slot.
        ("root", "<u8"),
        # Latest second of event time in which a block of such a chain was filled.
        ("second", "<i8"),
        # Number of the hash domain and group.
        ("space", "<u4"),
        # Label of the source that filled the latest one.
        ("label", "<u4"),
    ],
    align=True,
)
FIRSTS: Final = 1 << 15
"""Slots for first blocks, a power of two; of first blocks that share a slot, the latest is remembered."""
_SMALLEST: Final = 1024


class Labels(NamedTuple):
    """Labels of engine sessions; the labels of sessions found to hash alike are joined."""

    parents: I64
    """Label that each one was joined to; its own number if it was not."""
    members: I64
    """Open sessions of a label and of all that were joined to it."""


class Origins(NamedTuple):
    """Sources by number."""

    labels: I64
    """Of the current session; -1 without one."""
    returns: I64
    """How often a source filled blocks of a chain whose first block it had used in an earlier second."""


class PieceOrigins(NamedTuple):
    """The source and space of each piece of a record."""

    sources: I64
    """Source numbers."""
    spaces: U32
    """Space numbers."""
    salts: U64
    """Of the spaces: give equal first blocks of different spaces different slots."""


@compiled
def _end_of(parents: I64, label: int) -> int:
    """Return the label that represents all labels joined with this one."""
    while parents[label] != label:
        parents[label] = parents[parents[label]]
        label = parents[label]
    return label


@compiled
def _match(firsts: Any, labels: Labels, origins: Origins, changes: Changes, pieces: PieceOrigins) -> int:
    """Remember the first blocks of fills; return how many labels were joined to others."""
    parents = labels.parents
    matched = 0
    for at in range(len(changes.roots)):
        root = changes.roots[at]
        if root == np.uint64(0):
            continue
        piece = changes.pieces[at]
        source = pieces.sources[piece]
        slot = np.int64((root + pieces.salts[piece]) & np.uint64(FIRSTS - 1))
        second = np.int64(np.floor(changes.times[at]))
        label = _end_of(parents, origins.labels[source])
        if firsts[slot].root == root and firsts[slot].space == pieces.spaces[piece]:
            other = _end_of(parents, np.int64(firsts[slot].label))
            if other != label:
                gone = max(label, other)
                label = min(label, other)
                parents[gone] = label
                labels.members[label] += labels.members[gone]
                matched += 1
            elif second > firsts[slot].second:
                origins.returns[source] += 1
            second = max(second, np.int64(firsts[slot].second))
        firsts[slot].root = root
        firsts[slot].space = pieces.spaces[piece]
        firsts[slot].second = second
        firsts[slot].label = label
    return matched


class HashComparison:
    """Labels of sources' engine sessions, joined where two of them fill chains with the same first block."""

    def __init__(self, after: int, head: FleetHead, packed: Packed) -> None:
        """`head` has the labels' names and what is known of sources; `packed` the tables of a base, if any.

        A source counts as alone after `after` returns of its own and as many by the others of its hash
        domain without a match; with 0, never.
        """
        self.names = head.labels
        self.standings = head.standings
        labels = Labels(np.zeros(_SMALLEST, np.int64), np.zeros(_SMALLEST, np.int64))
        origins = Origins(np.full(16, -1, np.int64), np.zeros(16, np.int64))
        self._labels = put_into(labels, packed.get("labels", ()))
        self._origins = put_into(origins, packed.get("origins", ()))
        self._firsts = np.zeros(FIRSTS, FIRST)
        if "firsts" in packed:
            slots, *fields = packed["firsts"]
            self._firsts[np.frombuffer(slots, np.int64)] = rows_of(FIRST, fields)
        self._returns_of_domain: Counter[str] = Counter()
        """Returns of all sources of a hash domain, as of the last count (`_count_returns`)."""
        for number, standing in self.standings.items():
            self._returns_of_domain[standing.domain] += int(self._origins.returns[number])
        self._counted = self._origins.returns.copy()
        """Returns of each source as of the last count."""
        self._uncounted = False
        """Whether there may be returns since then."""
        self._alike: dict[int, int] = {}
        """Results of `alike`, for sources whose labels have not changed since."""
        self.changed = False
        """Whether anything changed since this was last set to False."""
        self._after = after

    def copied(self) -> dict[TableName, Table]:
        """Return copies of labels, sources and first blocks for a base."""
        slots = np.flatnonzero(self._firsts["root"])
        return {
            "labels": mapped(self._labels, lambda column: column[: len(self.names)].copy()),
            "origins": mapped(self._origins, np.copy),
            "firsts": [slots, *fields_of(self._firsts[slots])],
        }

    def is_alone(self, number: int, said: SourceChanges) -> bool:
        """Note that a record has changes of a source; return whether the source is alone.

        Called for all sources of a record before `match_first_blocks`.
        """
        standing = self.standings.get(number)
        if standing is None:
            self.room_for_source(number)
            standing = self.standings[number] = FleetStanding(said.hash_domain, said.model)
        alike = self._alike.get(number)
        if said.incarnation > standing.incarnation or (alike is None and self._origins.labels[number] < 0):
            self._count_returns()
            self._returns_of_domain[standing.domain] -= int(self._origins.returns[number])
            self._returns_of_domain[said.hash_domain] += int(self._origins.returns[number])
            standing.domain, standing.model = said.hash_domain, said.model
            standing.incarnation = said.incarnation
            self._begin(number, standing, f"{said.replica}/{said.dp_rank}@{said.incarnation}")
            alike = None
        if alike is None:
            alike = self._alike[number] = self.alike(number)
        if alike:
            self.changed |= standing.alone
            standing.alone = False
        elif not standing.alone and self._is_alone(number, standing):
            self.changed = standing.alone = True
        return standing.alone

    def alike(self, number: int) -> int:
        """Return how many other sources were found to hash like this one."""
        return int(self._labels.members[_end_of(self._labels.parents, self._origins.labels[number])]) - 1

    def group(self, number: int) -> str:
        """Return the name of the oldest engine session found to hash like this source."""
        return self.names[_end_of(self._labels.parents, self._origins.labels[number])]

    def match_first_blocks(self, changes: Changes, pieces: PieceOrigins) -> None:
        """Compare the first blocks of fills."""
        self._uncounted = True
        if _match(self._firsts, self._labels, self._origins, changes, pieces):
            self.changed = True
            self._alike.clear()

    def _count_returns(self) -> None:
        """Bring the counts per hash domain up to date: only on demand, as most sources hash like another."""
        if not self._uncounted:
            return
        self._uncounted = False
        returns = self._origins.returns
        more = returns - self._counted
        for number in np.flatnonzero(more).tolist():
            self._returns_of_domain[self.standings[number].domain] += int(more[number])
        self._counted = returns.copy()

    def forget(self, number: int) -> None:
        """Free a source's number; sources that hashed like it keep that proof."""
        self._count_returns()
        standing = self.standings.pop(number, None)
        if standing is not None:
            self._returns_of_domain[standing.domain] -= int(self._origins.returns[number])
        self._alike.pop(number, None)
        self._origins.labels[number] = -1
        self._origins.returns[number] = self._counted[number] = 0

    def room_for_source(self, number: int) -> None:
        """Make sure that a source with this number can be compared."""
        while number >= len(self._origins.labels):
            known = len(self._origins.labels)
            self._origins = mapped(self._origins, doubled)
            self._counted = doubled(self._counted)
            self._origins.labels[known:] = -1

    def _begin(self, number: int, standing: FleetStanding, name: str) -> None:
        """Give a source's new session its own label; a source left without a match starts proving anew."""
        self._alike.clear()
        before = int(self._origins.labels[number])
        self._origins.labels[number] = -1
        if before >= 0:
            before = _end_of(self._labels.parents, before)
            self._labels.members[before] -= 1
            if self._labels.members[before] == 1:
                for other, left in self.standings.items():
                    label = self._origins.labels[other]
                    if label >= 0 and _end_of(self._labels.parents, label) == before:
                        self._prove_anew(other, left)
        self._origins.labels[number] = self._new_label(name)
        # One that was alone stays so over restarts, until a match.
        if not standing.alone:
            self._prove_anew(number, standing)
        self.changed = True

    def _prove_anew(self, number: int, standing: FleetStanding) -> None:
        """Count the returns of a source without a match from here on."""
        standing.returns_before = int(self._origins.returns[number])
        standing.others_before = self._returns_of_others(number, standing)

    def _is_alone(self, number: int, standing: FleetStanding) -> bool:
        return (
            self._after > 0
            and int(self._origins.returns[number]) - standing.returns_before >= self._after
            and self._returns_of_others(number, standing) - standing.others_before >= self._after
        )

    def _returns_of_others(self, number: int, standing: FleetStanding) -> int:
        self._count_returns()
        return self._returns_of_domain[standing.domain] - int(self._origins.returns[number])

    def _new_label(self, name: str) -> int:
        if len(self.names) == len(self._labels.parents):
            self._renumber()
            if 2 * len(self.names) > len(self._labels.parents):
                self._labels = mapped(self._labels, doubled)
        label = len(self.names)
        self.names.append(name)
        self._labels.parents[label] = label
        self._labels.members[label] = 1
        return label

    def _renumber(self) -> None:
        """Forget labels that no source and no first block uses."""
        ends = np.arange(len(self.names))
        while np.any(self._labels.parents[ends] != ends):
            ends = self._labels.parents[ends]
        known, remembered = self._origins.labels >= 0, self._firsts["root"] != 0
        self._origins.labels[known] = ends[self._origins.labels[known]]
        self._firsts["label"][remembered] = ends[self._firsts["label"][remembered]]
        used = np.unique(np.concatenate((self._origins.labels[known], self._firsts["label"][remembered])))
        self._origins.labels[known] = np.searchsorted(used, self._origins.labels[known])
        self._firsts["label"][remembered] = np.searchsorted(used, self._firsts["label"][remembered])
        self.names[:] = [self.names[label] for label in used.tolist()]
        members = self._labels.members[used]
        self._labels.parents[: len(used)] = np.arange(len(used))
        self._labels.members[: len(used)] = members
