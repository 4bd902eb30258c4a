"""Which sources hash alike, as far as the first blocks of their chains show it.

Two sources that share any block share the first block of its chain. So first blocks are enough, and every
shard of the hash space sees those of all chains that reach into it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from pipeline.compiled import compiled
from pipeline.fleet.columns import Changes
from pipeline.fleet.index import F64, I64, U32, U64, doubled
from schemas.residency import SourceChanges

FIRST: Final = np.dtype(
    [
        # First block of a chain; 0: a free slot.
        ("root", "<u8"),
        # Latest second of event time in which a block of such a chain was filled.
        ("second", "<i8"),
        # Number of the hash domain and group.
        ("space", "<u4"),
        # Of the source that filled the latest one.
        ("label", "<u4"),
    ],
    align=True,
)
FIRSTS: Final = 1 << 15
"""First blocks remembered, a power of two: each has one slot, which the latest one takes."""
_SMALLEST: Final = 1024


@compiled
def _end_of(parents: I64, label: int) -> int:
    """Return the label that stands for all that were found to be alike."""
    while parents[label] != label:
        parents[label] = parents[parents[label]]
        label = parents[label]
    return label


@compiled
def _meet(
    firsts: Any,
    parents: I64,
    members: I64,
    labels: I64,
    returns: I64,
    roots: U64,
    times: F64,
    pieces: npt.NDArray[np.int32],
    sources: I64,
    spaces: U32,
    salts: U64,
) -> int:
    """Note the first blocks of fills; return how many sources turned out to hash like others."""
    met = 0
    for at in range(len(roots)):
        root = roots[at]
        if root == np.uint64(0):
            continue
        piece = pieces[at]
        source = sources[piece]
        slot = np.int64((root + salts[piece]) & np.uint64(FIRSTS - 1))
        second = np.int64(np.floor(times[at]))
        label = _end_of(parents, labels[source])
        if firsts[slot].root == root and firsts[slot].space == spaces[piece]:
            other = _end_of(parents, np.int64(firsts[slot].label))
            if other != label:
                gone = max(label, other)
                label = min(label, other)
                parents[gone] = label
                members[label] += members[gone]
                met += 1
            elif second > firsts[slot].second:
                returns[source] += 1
            second = max(second, np.int64(firsts[slot].second))
        firsts[slot].root = root
        firsts[slot].space = spaces[piece]
        firsts[slot].second = second
        firsts[slot].label = label
    return met


@dataclass(slots=True)
class Standing:
    """What is known of a source's hashes."""

    domain: str
    model: str
    incarnation: int = 0
    returns_before: int = 0
    """Returns of the source when it last began, or was left, without another that hashes alike."""
    others_before: int = 0
    """Those of the other sources of its hash domain then."""
    alone: bool = False
    """Shares nothing with anybody, though its traffic and that of others keep coming back to first blocks."""


class Comparing:
    """Labels of sources' lives, joined where two of them fill chains with the same first block."""

    def __init__(self, after: int) -> None:
        """A source is alone `after` returns of its own and as many of others without a match; 0: never."""
        self.firsts = np.zeros(FIRSTS, FIRST)
        self.parents = np.zeros(_SMALLEST, np.int64)
        self.members = np.zeros(_SMALLEST, np.int64)
        """Lives that go on, of a label and all that were joined to it."""
        self.names: list[str] = []
        """Of the life that a label was made for."""
        self.labels = np.full(16, -1, np.int64)
        """By number of the source."""
        self.returns = np.zeros(16, np.int64)
        """How often a source filled blocks of a chain whose first block it had used in an earlier second."""
        self.returns_of_domain: Counter[str] = Counter()
        """The same of all sources of a hash domain."""
        self.standings: dict[int, Standing] = {}
        self.moved = False
        """Something changed since this was last set to False."""
        self._after = after

    def says(self, number: int, said: SourceChanges) -> bool:
        """Take note that a record has changes of a source; return whether that is alone.

        Called for all sources of a record before `meet`.
        """
        standing = self.standings.get(number)
        if standing is None:
            self.room_for_source(number)
            standing = self.standings[number] = Standing(said.hash_domain, said.model)
        if said.incarnation > standing.incarnation or self.labels[number] < 0:
            self.returns_of_domain[standing.domain] -= int(self.returns[number])
            self.returns_of_domain[said.hash_domain] += int(self.returns[number])
            standing.domain, standing.model = said.hash_domain, said.model
            standing.incarnation = said.incarnation
            self._begin(number, standing, f"{said.replica}/{said.dp_rank}@{said.incarnation}")
        if self.alike(number):
            self.moved |= standing.alone
            standing.alone = False
        elif not standing.alone and self._is_alone(number, standing):
            self.moved = standing.alone = True
        return standing.alone

    def alike(self, number: int) -> int:
        """Return how many other sources were found to hash like this one."""
        return int(self.members[_end_of(self.parents, self.labels[number])]) - 1

    def group(self, number: int) -> str:
        """Return the name of the oldest life found to hash like this source."""
        return self.names[_end_of(self.parents, self.labels[number])]

    def meet(self, changes: Changes, sources: I64, spaces: U32, salts: U64) -> None:
        """Follow the fills of a record; `sources`, `spaces` and their `salts` are those of its pieces."""
        present = np.unique(sources)
        before = self.returns[present]
        met = _meet(
            self.firsts,
            self.parents,
            self.members,
            self.labels,
            self.returns,
            changes.roots,
            changes.times,
            changes.pieces,
            sources,
            spaces,
            salts,
        )
        self.moved |= met > 0
        for number, more in zip(present.tolist(), (self.returns[present] - before).tolist(), strict=True):
            self.returns_of_domain[self.standings[number].domain] += more

    def forget(self, number: int) -> None:
        """Give a source's number back; who hashed like it keeps that proof."""
        standing = self.standings.pop(number, None)
        if standing is not None:
            self.returns_of_domain[standing.domain] -= int(self.returns[number])
        self.labels[number] = -1
        self.returns[number] = 0

    def room_for_source(self, number: int) -> None:
        """Make sure that a source of this number has a place."""
        while number >= len(self.labels):
            held = len(self.labels)
            self.labels, self.returns = doubled(self.labels), doubled(self.returns)
            self.labels[held:] = -1

    def _begin(self, number: int, standing: Standing, name: str) -> None:
        """Give a source's new life a label of its own; whoever that leaves alone begins to prove it."""
        before = int(self.labels[number])
        self.labels[number] = -1
        if before >= 0:
            before = _end_of(self.parents, before)
            self.members[before] -= 1
            if self.members[before] == 1:
                for other, left in self.standings.items():
                    if self.labels[other] >= 0 and _end_of(self.parents, self.labels[other]) == before:
                        self._mark(other, left)
        self.labels[number] = self._new_label(name)
        if not standing.alone:
            self._mark(number, standing)
        self.moved = True

    def _mark(self, number: int, standing: Standing) -> None:
        standing.returns_before = int(self.returns[number])
        standing.others_before = self._returns_of_others(number, standing)

    def _is_alone(self, number: int, standing: Standing) -> bool:
        return (
            self._after > 0
            and int(self.returns[number]) - standing.returns_before >= self._after
            and self._returns_of_others(number, standing) - standing.others_before >= self._after
        )

    def _returns_of_others(self, number: int, standing: Standing) -> int:
        return self.returns_of_domain[standing.domain] - int(self.returns[number])

    def _new_label(self, name: str) -> int:
        if len(self.names) == len(self.parents):
            self._renumber()
            if 2 * len(self.names) > len(self.parents):
                self.parents, self.members = doubled(self.parents), doubled(self.members)
        label = len(self.names)
        self.names.append(name)
        self.parents[label] = label
        self.members[label] = 1
        return label

    def _renumber(self) -> None:
        """Forget labels that no source and no first block has."""
        ends = np.arange(len(self.names))
        while np.any(self.parents[ends] != ends):
            ends = self.parents[ends]
        known, remembered = self.labels >= 0, self.firsts["root"] != 0
        self.labels[known] = ends[self.labels[known]]
        self.firsts["label"][remembered] = ends[self.firsts["label"][remembered]]
        used = np.unique(np.concatenate((self.labels[known], self.firsts["label"][remembered])))
        self.labels[known] = np.searchsorted(used, self.labels[known])
        self.firsts["label"][remembered] = np.searchsorted(used, self.firsts["label"][remembered])
        self.names = [self.names[label] for label in used.tolist()]
        members = self.members[used]
        self.parents[: len(used)] = np.arange(len(used))
        self.members[: len(used)] = members
