"""One shard of the hash space, record by record: why blocks were filled, and who holds them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from pipeline.kafka.refusal import RecordRefused
from pipeline.verify import times
from pipeline.verify.fleet.changes import Change, ChangesInOrder, SourceId
from pipeline.verify.fleet.hash_groups import HashGroups
from pipeline.verify.fleet.losses import Losses
from pipeline.verify.fleet.owners import Owners, Redundancy, RedundancyKey
from pipeline.verify.fleet.prefixes import Prefixes
from pipeline.verify.replica.flow import count_in, count_seconds
from schemas.residency import CLEARED, EVICTED, FILLED, ResidencyRecord
from schemas.settings import Fleet, Worker
from schemas.trust import TRUST_ORDER, Trust

LAST_NEEDED = 47
"""Last bucket of extra cache needed; it is open."""


class FillsOf(NamedTuple):
    """What a row of `fills_10s` is about."""

    window: int
    hash_domain: str
    model: str
    replica: str
    dp_rank: int
    group_idx: int


@dataclass
class Fills:
    """The figures of such a row, and of the one of `capacity_curve_10s` beside it."""

    version: int
    blocks: Counter[str] = field(default_factory=Counter)
    """By cause."""
    tokens: Counter[str] = field(default_factory=Counter)
    regret_hist: list[int] = field(default_factory=list)
    needed_hist: list[int] = field(default_factory=list)
    trust: Trust = "complete"


class FleetRecount:
    """State of one shard by the rules of docs/figures.md, kept in dicts."""

    def __init__(self, settings: Fleet, *, forget_seconds: float = Worker().forget_seconds) -> None:
        self.fills: dict[FillsOf, Fills] = {}
        """Of windows in which fills may still count, and of those that the last record changed."""
        self.touched: set[FillsOf] = set()
        """Those that the last record changed."""
        self.owners = Owners()
        self.versions: dict[RedundancyKey, int] = {}
        """Last record that changed the redundancy."""
        self.steps: dict[RedundancyKey, dict[int, Redundancy]] = {}
        """Of the last record: the redundancy that it left in each window in which it changed that."""
        self.window: int | None = None
        """Of the shard's clock, which is the latest event time."""
        self.on_window_over: Callable[[int, int], None] = lambda _window, _next: None
        """Called with the clock's window and the one that follows, before anything counts in that."""
        self.offset = 0
        """Of the last record."""
        self._clock = -math.inf
        self.hash_groups = HashGroups(settings.compare_after)
        self._order = ChangesInOrder(settings.horizon_seconds)
        self._losses = Losses(settings.horizon_seconds, settings.max_ghosts)
        self.prefixes = Prefixes(self.owners, lambda block: bool(self._losses.of(block)))
        self._open: dict[tuple[SourceId, str, str, int], FillsOf] = {}
        """The latest fills of a source, by hash domain, model and group."""
        self._forget_seconds = forget_seconds
        self._looked_in: int | None = None
        """Window in which it was last looked for sources to forget."""
        self._over: list[FillsOf] = []
        """Fills of windows in which nothing counts any more."""

    def apply(self, offset: int, record: ResidencyRecord) -> None:
        """Apply a record."""
        self.touched, self.steps, self.offset = set(), {}, offset
        for of in self._over:
            self.fills.pop(of, None)
        self._over.clear()
        if self.window != self._looked_in:
            self._looked_in = self.window
            self._forget_sources()
        for said in record.sources:
            self.hash_groups.says(said)
        for change in self._order.of(record):
            self._move_to(change.at)
            self._count(offset, change)

    def _forget_sources(self) -> None:
        """Forget who has had no change for long, holds nothing, and lost nothing that is remembered."""
        for source in self._order.silent_since(self._clock - self._forget_seconds):
            if not self.owners.blocks_of[source] and not self._losses.losses_of[source]:
                self._order.forget(source)
                self._losses.forget_source(source)
                self.hash_groups.forget(source)
                for where in [where for where in self._open if where[0] == source]:
                    self.fills.pop(self._open.pop(where), None)

    def set_aside(self, refused: RecordRefused) -> None:
        """Note that nobody knows what a record said of the sources that it names."""
        self._order.set_aside(refused)

    def _move_to(self, at: float) -> None:
        """The clock and its window only go forward."""
        self._clock = max(self._clock, at)
        window = times.window_of(self._clock)
        if self.window is not None and window > self.window:
            for steps in self.steps.values():
                if self.window in steps:
                    steps[self.window] = steps[self.window].copy()
            self.on_window_over(self.window, window)
        self.window = window
        self._losses.forget_until(self._clock)

    def _count(self, offset: int, change: Change) -> None:
        block, source = change.block, change.source
        on_gpu = "gpu" in self.owners.media(block, source)
        if change.kind == FILLED:
            self.prefixes.filled(change)
            self.hash_groups.filled(change)
        if change.medium == "gpu" and change.kind == FILLED:
            self._filled(offset, change)
            if not on_gpu:
                self._losses.came_back(block, source)
        key = self.owners.change(change)
        self.prefixes.changed(block)
        if change.medium == "gpu" and on_gpu and change.kind in (EVICTED, CLEARED):
            self._losses.lost(change)
        if key is not None and self.window is not None:
            self.versions[key] = offset
            self.steps.setdefault(key, {})[self.window] = self.owners.redundancy[key]

    def _filled(self, offset: int, change: Change) -> None:
        block = change.block
        where = (change.source, block.hash_domain, block.model, block.group_idx)
        before = self._open.get(where)
        window = max(times.window_of(change.at), before.window if before else 0)
        key = FillsOf(window, block.hash_domain, block.model, *change.source, block.group_idx)
        if before is not None and window > before.window:
            self._over.append(before)
        self._open[where] = key
        fills = self.fills.setdefault(key, Fills(offset))
        fills.version = offset
        cause = self._cause(change, fills)
        fills.blocks[cause] += 1
        fills.tokens[cause] += change.size
        self.prefixes.refilled(change, cause)
        fills.trust = max(fills.trust, change.trust, key=TRUST_ORDER.index)
        self.touched.add(key)

    def _cause(self, change: Change, fills: Fills) -> str:
        """Return why the block was filled; count regret, and the extra cache that would have kept it."""
        block, source = change.block, change.source
        held = self.owners.media(block, source)
        by_others = self.owners.others(block, source)
        losses = dict(self._losses.of(block))
        own = losses.pop(source, None)
        if held:
            return "reannounced" if "gpu" in held else "promoted"
        if own is not None and not own.evicted:
            return "cleared"
        if own is not None:
            count_seconds(fills.regret_hist, change.at - own.at)
            kept = own.life == change.life and not self._losses.cleared_since(source, own)
            # A block of no tokens needs no cache: it makes no bucket, and no row.
            if kept and own.stored is not None and change.stored is not None and change.size:
                needed = max(change.stored - own.stored, 0)
                bucket = next((k for k in range(LAST_NEEDED) if needed <= 2**k), LAST_NEEDED)
                count_in(fills.needed_hist, bucket, change.size)
            return "peer_and_evicted" if by_others else "evicted"
        if by_others:
            return "peer"
        if any(loss.evicted for loss in losses.values()):
            count_seconds(fills.regret_hist, change.at - self._losses.last_evicted(block))
            return "evicted_elsewhere"
        if losses:
            return "cleared"
        unsure = change.trust != "complete" or change.at < change.unsure_until
        if unsure or self.hash_groups.alone(source):
            return "unknown"
        return "cold"
