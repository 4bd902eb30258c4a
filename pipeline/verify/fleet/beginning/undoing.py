"""What a shard held where its log begins: a later checkpoint of the fleet agent, with the log undone.

A change of residency can be undone, because it is a real one: what was filled was not there before, and what
left was. So going backwards through the log gives what was held before its first record. The checkpoint only
contributes blocks that no record names; all others follow from the log itself.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from pipeline.verify.fleet.beginning.checkpoint import HeldBlock, Pools, Saved, pool_of
from pipeline.verify.fleet.changes import Space, removals_announced
from pipeline.verify.fleet.parsed import Chain, columns_of, counting
from pipeline.verify.times import WINDOW
from schemas.fleet_checkpoints import FleetUndecided
from schemas.residency import FILLS, ResidencyRecord, SourceChanges

AT_ONCE = 1000
"""Offsets to read forward at a time, before their records are undone backward."""
UNKNOWN = "it is not known what was held where the log of the fleet begins"
NO_CHECKPOINT = "the fleet agent has no checkpoint yet"
TOO_OLD = "its checkpoint is older than the log"
SET_ASIDE = "a record was set aside since"
CONTRADICTED = "its checkpoint does not follow from the log"


class BeginningUnknown(Exception):
    """Nothing shows what was held where the log begins; the argument says why."""

    def __str__(self) -> str:
        return f"{UNKNOWN}: {self.args[0]}"


@dataclass
class Beginning:
    """What is known of a shard before the first record of its log."""

    since: float = -math.inf
    """Latest event time of what came before; figures of later windows can be known."""
    held: Pools = field(default_factory=dict)
    saved_offset: int = 0
    """Records from here on come after the checkpoint."""
    saved_clock: float = -math.inf
    """Latest event time in the checkpoint."""
    chains: Mapping[tuple[Space, int], Chain] = field(default_factory=dict)
    """Of the checkpoint."""
    undecided: FleetUndecided = field(default_factory=FleetUndecided)
    """What waits there until its source says whether it receives KV, and is not in `held`."""

    @property
    def whole(self) -> bool:
        """Whether the agent had no state there, so that everything follows from the log."""
        return self.since == -math.inf


class Undoing:
    """Goes backwards through the records of a shard."""

    def __init__(self, saved: Saved | None) -> None:
        """Begin with what was saved; None if nothing is known of the end."""
        self._saved = saved
        self.held: Pools = saved.held if saved is not None else {}
        self.changes = 0
        """As the fleet agent counts them."""
        self.latest = -math.inf
        """Latest event time."""
        self.contradictions = 0
        """Changes that cannot be undone, as the state is not what they lead to."""
        self._decided: dict[tuple[str, int, int], bool] = {}
        """Whether sessions of sources receive KV, as the next entry in the log says."""
        undecided = saved.undecided if saved is not None else FleetUndecided()
        self._waiting = [*undecided.changes]
        self._given_up = {*undecided.given_up}

    def undo(self, record: ResidencyRecord) -> None:
        """Undo a record, after all those that follow it."""
        for said in reversed(record.sources):
            of = said.replica, said.dp_rank, said.incarnation
            receives = self._decided.get(of, False) if said.undecided else said.receives
            if not said.undecided:
                self._decided[of] = receives
                self._given_up.discard(of[:2])
            elif said in self._waiting:
                self._waiting.remove(said)
            self.changes += self._undo(said, receives=receives)
            self.latest = max([self.latest, *(at for pool in said.changes for at in columns_of(pool).times)])

    def _undo(self, said: SourceChanges, *, receives: bool) -> int:
        """Undo what a source said; return how many changes count."""
        changes = 0
        for pool in reversed(said.changes):
            held = self.held.setdefault(pool_of(said, pool), {})
            announced = removals_announced(pool)
            columns = columns_of(pool)
            changes += sum(1 for _ in counting(columns))
            of_blocks = zip(
                reversed(columns.hashes), reversed(columns.kinds), reversed(columns.sizes), strict=True
            )
            for block, kind, size in of_blocks:
                if kind in FILLS:
                    self.contradictions += held.pop(block, None) is None
                else:
                    self.contradictions += block in held
                    held[block] = HeldBlock(announced, receives, size)
        return changes

    def beginning(self, *, written_at: float | None, ahead: float) -> Beginning:
        """Return what is known of the beginning, once all that is in the checkpoint was undone.

        `written_at`: when the first record was written, None if there is none. `ahead`: seconds by which
        receipts may be ahead of the log's time, and engines' timestamps of receipts. Raises BeginningUnknown.
        """
        saved = self._saved
        if saved is None:
            if any(self.held.values()) or not self.changes:
                raise BeginningUnknown(NO_CHECKPOINT)
            return Beginning()
        if saved.followed == self.changes:
            # All that the agent ever applied is in the log: it began with nothing.
            return Beginning()
        for said in reversed(self._waiting):
            self._undo(said, receives=False)
        if self.contradictions:
            raise BeginningUnknown(CONTRADICTED)
        since = saved.clock
        if written_at is not None and self.latest >= saved.clock:
            # A session that ends does so at the end of a window.
            since = min(written_at + 2 * ahead + WINDOW, saved.clock)
        undecided = FleetUndecided([*self._given_up], self._waiting)
        return Beginning(since, self.held, saved.next_offset, saved.clock, saved.chains, undecided)
