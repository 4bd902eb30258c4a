"""What all changes of a source's pool have in common, looked up by name and cached."""

from __future__ import annotations

from typing import NamedTuple

from pipeline.fleet.kernel.keys import constant_of
from pipeline.fleet.open_windows import OpenWindows
from pipeline.fleet.registry import Names, Space
from schemas.residency import ResidencyChanges, SourceChanges

_MEDIUM_CONSTANTS = 1 << 32
"""Where the constants of media begin among those of `keys.constant_of`."""


class NamedPool(NamedTuple):
    """A medium and group of a source."""

    space: Space
    bit: int
    """Of the medium."""
    medium_key: int
    gauge: int
    cell: int
    lineage: tuple[int]
    """Number of the lineage without a LoRA."""


class PoolNames:
    """Pools by name, cached: a pool that a record names again costs one lookup."""

    def __init__(self, names: Names, open_windows: OpenWindows) -> None:
        """New names are added to `names` and `open_windows`."""
        self._names = names
        self._open = open_windows
        self._known: dict[int, dict[tuple[str, str, int, str, bool], NamedPool]] = {}
        """By source."""

    def of(self, source: int, said: SourceChanges, part: ResidencyChanges) -> NamedPool:
        """Return the pool that the changes in `part` are of; `said` is from the source with this number."""
        known = self._known.setdefault(source, {})
        key = said.hash_domain, said.model, part.group_idx, part.medium, part.store_only
        pool = known.get(key)
        if pool is None:
            names = self._names
            space = names.spaces.of(said.hash_domain, said.model, part.group_idx)
            bit, medium = names.media.of(part.medium, store_only=part.store_only)
            gauge = self._open.gauge(space.number, medium)
            pool = known[key] = NamedPool(
                space,
                bit,
                constant_of(_MEDIUM_CONSTANTS + gauge),
                gauge,
                self._open.cell(source, space.number),
                (names.lineages.of(space).number,),
            )
        return pool

    def lineages(self, pool: NamedPool, part: ResidencyChanges) -> tuple[int, ...]:
        """Return the numbers of the lineages of a part: without a LoRA, and with each of its LoRAs."""
        if not part.loras:
            return pool.lineage
        of = self._names.lineages.of
        return *pool.lineage, *[of(pool.space, lora).number for lora in part.loras]

    def forget(self, source: int) -> None:
        """Forget the pools of a source whose number and cells were freed."""
        self._known.pop(source, None)
