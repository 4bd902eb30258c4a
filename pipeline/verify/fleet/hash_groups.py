"""Which sources hash alike, by the rules of docs/figures.md, with sets of names."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from zlib import crc32

from pipeline.verify.fleet.changes import Change, Space
from pipeline.verify.keys import SourceId
from schemas.residency import SourceChanges
from schemas.setting_rows import HashGroupRow

REMEMBERED = 32_768
"""First blocks remembered; a later one takes the slot of an earlier one."""

FORGOTTEN: SourceId = ("", -1)
"""Takes the place of a member that was forgotten."""


@dataclass(eq=False)
class Group:
    """Sessions of sources that hash alike."""

    name: str
    """The first of them."""
    number: int
    """Of that one."""
    members: list[SourceId]
    """Sources whose present session is in it."""


@dataclass(eq=False)
class _Source:
    said: SourceChanges
    group: Group
    returns: int = 0
    own_before: int = 0
    others_before: int = 0
    alone: bool = False


@dataclass
class _Latest:
    space: Space
    root: int
    """First block of the chain."""
    source_group: Group
    second: int


class HashGroups:
    """Follows which sources use the same first blocks."""

    def __init__(self, after: int) -> None:
        self._after = after
        self._sources: dict[SourceId, _Source] = {}
        self._latest: dict[int, _Latest] = {}
        self._salts: dict[Space, int] = {}
        self._groups = 0

    def says(self, said: SourceChanges) -> None:
        """Note a source of a record."""
        name = (said.replica, said.dp_rank)
        source = self._sources.get(name)
        if source is None or said.incarnation > source.said.incarnation:
            group = Group(f"{said.replica}/{said.dp_rank}@{said.incarnation}", self._groups, [name])
            self._groups += 1
            if source is None:
                source = self._sources[name] = _Source(said, group)
            else:
                left = source.group
                left.members.remove(name)
                source.said, source.group = said, group
                if len(left.members) == 1 and left.members[0] != FORGOTTEN:
                    self._mark(left.members[0])
            if not source.alone:
                self._mark(name)
        if len(source.group.members) > 1:
            source.alone = False
        elif self._after and not source.alone:
            source.alone = (
                source.returns - source.own_before >= self._after
                and self._others(name) - source.others_before >= self._after
            )

    def forget(self, name: SourceId) -> None:
        """Forget a source; sources that hashed like it keep that proof."""
        source = self._sources.pop(name, None)
        if source is not None:
            members = source.group.members
            members[members.index(name)] = FORGOTTEN

    def alone(self, source: SourceId) -> bool:
        """Return whether a source counts as hashing differently."""
        return self._sources[source].alone

    def filled(self, change: Change) -> None:
        """Note the first block of what was filled."""
        if not change.chain.root:
            return
        source, space = self._sources[change.of.source], change.of.space
        root = change.chain.root
        salt = self._salts.get(space)
        if salt is None:
            salt = self._salts[space] = crc32(space.hash_domain.encode()) + space.group_idx
        slot = (root + salt) % REMEMBERED
        second = int(change.at // 1)
        latest = self._latest.get(slot)
        if latest is None or latest.root != root or latest.space != space:
            self._latest[slot] = _Latest(space, root, source.group, second)
            return
        if latest.source_group is not source.group:
            self._join(latest.source_group, source.group)
        elif second > latest.second:
            source.returns += 1
        latest.source_group = source.group
        latest.second = max(second, latest.second)

    def rows(self, shard: int, version: int) -> Iterator[HashGroupRow]:
        """Yield the rows of all sources."""
        for (replica, dp_rank), source in self._sources.items():
            yield HashGroupRow(
                source.said.hash_domain,
                source.said.model,
                replica,
                dp_rank,
                shard,
                source.said.incarnation,
                source.group.name,
                len(source.group.members) - 1,
                source.alone,
                version,
            )

    def _join(self, one: Group, other: Group) -> None:
        older, younger = sorted((one, other), key=lambda group: group.number)
        older.members += younger.members
        for source in self._sources.values():
            if source.group is younger:
                source.group = older
        for latest in self._latest.values():
            if latest.source_group is younger:
                latest.source_group = older

    def _mark(self, name: SourceId) -> None:
        source = self._sources[name]
        source.own_before, source.others_before = source.returns, self._others(name)

    def _others(self, name: SourceId) -> int:
        domain = self._sources[name].said.hash_domain
        return sum(
            source.returns
            for other, source in self._sources.items()
            if other != name and source.said.hash_domain == domain
        )
