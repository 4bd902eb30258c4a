"""Rows that record which sources hash alike, made when that changes."""

from __future__ import annotations

from pipeline.fleet.hashing.comparison import HashComparison
from pipeline.fleet.registry import Sources
from schemas.rows import Row
from schemas.setting_rows import HashGroupRow

_Said = tuple[str, str, str, int, int, int, str, int, bool]
"""A row but for its version."""


class HashGroups:
    """Remembers what the last rows recorded of each source."""

    def __init__(self, shard: int, comparison: HashComparison, sources: Sources) -> None:
        self._shard = shard
        self._comparison = comparison
        self._sources = sources
        self._said: dict[tuple[str, int], _Said] = {}

    def changed(self, version: int) -> list[Row]:
        """Return rows of the sources whose group or standing changed since the last call."""
        if not self._comparison.changed:
            return []
        self._comparison.changed = False
        rows: list[Row] = []
        said: dict[tuple[str, int], _Said] = {}
        for name, source in self._sources.by_name.items():
            standing = self._comparison.standings.get(source.number)
            if standing is None:
                continue
            said[name] = (
                standing.domain,
                standing.model,
                *name,
                self._shard,
                standing.incarnation,
                self._comparison.group(source.number),
                self._comparison.alike(source.number),
                standing.alone,
            )
            if said[name] != self._said.get(name):
                rows.append(HashGroupRow(*said[name], version))
        self._said = said
        return rows
