"""Rows that record which sources hash alike, made when that changes."""

from __future__ import annotations

from pipeline.fleet.hashing.comparison import Comparing
from pipeline.fleet.registry import Sources
from schemas.rows import Row
from schemas.setting_rows import HashGroupRow

_Said = tuple[str, str, int, str, int, bool]


class HashGroups:
    """Remembers what the last rows recorded of each source."""

    def __init__(self, shard: int, comparing: Comparing, sources: Sources) -> None:
        self._shard = shard
        self._comparing = comparing
        self._sources = sources
        self._said: dict[tuple[str, int], _Said] = {}

    def changed(self, version: int) -> list[Row]:
        """Return rows of the sources whose group or standing changed since the last call."""
        if not self._comparing.moved:
            return []
        self._comparing.moved = False
        rows: list[Row] = []
        said: dict[tuple[str, int], _Said] = {}
        for name, source in self._sources.by_name.items():
            standing = self._comparing.standings.get(source.number)
            if standing is None:
                continue
            said[name] = (
                standing.domain,
                standing.model,
                standing.incarnation,
                self._comparing.group(source.number),
                self._comparing.alike(source.number),
                standing.alone,
            )
            if said[name] != self._said.get(name):
                rows.append(self._row(*name, said[name], version))
        self._said = said
        return rows

    def _row(self, replica: str, dp_rank: int, said: _Said, version: int) -> HashGroupRow:
        domain, model, incarnation, group, alike, alone = said
        return HashGroupRow(
            domain, model, replica, dp_rank, self._shard, incarnation, group, alike, alone, version
        )
