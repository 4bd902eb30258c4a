"""The order in which the objects of one medium were used. They share its room, whatever their group."""

from __future__ import annotations

from collections.abc import Iterable

from pipeline.residency.objects.recency import Recency
from schemas.pool_checkpoints import ObjectPool, ObjectState

NOT_USED = 0
"""In place of a number: the object is not in the order of uses."""


class Medium:
    """The order in which objects were used last."""

    def __init__(self, pools: Iterable[ObjectPool] = ()) -> None:
        """`pools` are those of a checkpoint."""
        self.pools = [*pools]
        self._number_anew()

    def use(self, one: ObjectState, at: float) -> None:
        """Record the use, at event time `at`, of an object that is in one of the pools or about to be."""
        self.forget(one)
        if self._used == self._recency.room:
            self._number_anew()
        self._used += 1
        one.used, one.used_at = self._used, at
        self._recency.add(one.used, one.size)

    def forget(self, one: ObjectState) -> None:
        """Take an object that leaves, or whose size will change, out of the order until its next use."""
        if one.used != NOT_USED:
            self._recency.add(one.used, -one.size)
            one.used = NOT_USED

    def needed(self, one: ObjectState) -> int:
        """Return the bytes of an object and of all used after it: with less room it would be gone."""
        return self._recency.since(one.used)

    def _number_anew(self) -> None:
        """Number the last uses from 1, in their order."""
        held = [one for pool in self.pools for one in pool.held.values() if one.used != NOT_USED]
        held.sort(key=lambda one: one.used)
        self._recency = Recency(len(held))
        for number, one in enumerate(held, 1):
            one.used = number
            self._recency.add(number, one.size)
        self._used = len(held)
