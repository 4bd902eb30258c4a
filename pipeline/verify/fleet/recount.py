"""One shard of the hash space, record by record: why blocks were filled, and who holds them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import NamedTuple

from pipeline.kafka.refusal import RecordRefused
from pipeline.verify import times
from pipeline.verify.fleet.beginning.undoing import Beginning
from pipeline.verify.fleet.block import Block, Blocks
from pipeline.verify.fleet.changes import Change, ChangesInOrder, Piece, Space
from pipeline.verify.fleet.hash_groups import HashGroups
from pipeline.verify.fleet.losses import Losses
from pipeline.verify.fleet.owners import Owners, Redundancy, RedundancyKey
from pipeline.verify.fleet.parsed import Chain
from pipeline.verify.fleet.prefixes import Prefixes
from pipeline.verify.fleet.transfers import Transfers, Would
from pipeline.verify.fleet.undecided import Undecided
from pipeline.verify.fleet.waiting import WaitingChanges
from pipeline.verify.keys import SourceId
from pipeline.verify.replica.flow import count_in, count_seconds
from schemas.residency import CLEARED, EVICTED, FILLED, FILLS, GENERATED, RETURNED, ResidencyRecord
from schemas.settings import Fleet, Worker
from schemas.trust import TRUST_ORDER, Trust

LAST_NEEDED = 47
"""Last bucket of extra cache needed; it is open."""
KEPT = ("promoted", "generated", "reannounced")
"""Causes that a block keeps even if its run was transferred."""


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
    transferred_again: int = 0
    """Tokens transferred that had been evicted here."""
    at_receivers: Counter[str] = field(default_factory=Counter)
    """Tokens, by cause, of blocks held or evicted only by sources that receive KV."""
    regret_hist: list[int] = field(default_factory=list)
    needed_hist: list[int] = field(default_factory=list)
    trust: Trust = "complete"
    early: bool = False
    """Whether some of it dates from a time for which not all losses are known."""
    cold_or_unknown: Counter[str] = field(default_factory=Counter)
    """`blocks` and `tokens` that are cold here, but unknown if the source was taken to hash differently."""


@dataclass(slots=True)
class _Place:
    """Where the changes of a piece count."""

    blocks: dict[int, Block]
    key: RedundancyKey
    redundancy: Redundancy
    changed_in: int | None = None
    """Latest window of the record in which that changed."""


class FleetRecount:
    """State of one shard by the rules of docs/figures.md, kept in dicts."""

    def __init__(
        self,
        settings: Fleet,
        beginning: Beginning | None = None,
        *,
        shards: int = 1,
        forget_seconds: float = Worker().forget_seconds,
    ) -> None:
        """`beginning`: what is known of the time before the first record; None: there was nothing."""
        beginning = beginning or Beginning()
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
        self.losses_known_from = beginning.since + settings.horizon_seconds
        """Event time from which on all losses within the horizon are known."""
        self.hash_groups = HashGroups(settings.compare_after)
        self.prefixes = Prefixes()
        self._may_be_alone = settings.compare_after > 0 and not beginning.whole
        """Whether a source may count as hashing differently for what it did before the log begins."""
        self._clock = -math.inf
        self._order = ChangesInOrder(settings.horizon_seconds)
        self._waiting = WaitingChanges(settings.order_seconds, settings.max_waiting)
        self._most_waiting = settings.max_waiting
        self._undecided = Undecided(beginning.undecided)
        self._blocks = Blocks()
        self._transfers = Transfers(shards)
        self._losses = Losses(self._blocks, settings.horizon_seconds, settings.max_ghosts)
        self._open: dict[tuple[SourceId, Space], FillsOf] = {}
        """The latest fills, by source and space of its hashes."""
        self._forget_seconds = forget_seconds
        self._looked_in: int | None = None
        """Window in which sources to forget were last looked for."""
        self._over: list[FillsOf] = []
        """Fills of windows in which nothing counts any more."""
        for pool, held in beginning.held.items():
            space = pool.space
            for announced, received in product((True, False), repeat=2):
                piece = Piece(
                    pool.source, 0, 0, space, pool.medium, announced, "complete", 0.0, receives=received
                )
                place = self._place(piece)
                for block_hash, one in held.items():
                    if (one.announced, one.received) == (announced, received):
                        block = place.blocks.setdefault(block_hash, Block(space, block_hash))
                        self.owners.change(block, piece, place.redundancy, FILLED, one.size)

    def learn_chains(self, chains: Mapping[tuple[Space, int], Chain]) -> None:
        """Set the chains of all blocks that are held or remembered."""
        for (space, block_hash), chain in chains.items():
            block = self._blocks.of(space).get(block_hash)
            if block is not None:
                block.chain = chain
                self.prefixes.changed(block)

    def apply(self, offset: int, record: ResidencyRecord) -> None:
        """Apply a record."""
        self.touched, self.steps, self.offset = set(), {}, offset
        for of in self._over:
            self.fills.pop(of, None)
        self._over.clear()
        if self.window != self._looked_in:
            self._looked_in = self.window
            self._forget_sources()
        until = -math.inf
        if record.decisions is not None:
            self._transfers.decided(record.decisions)
        else:
            until = self._waiting.heard(record)
            for decided in self._undecided.of(record):
                self._wait(decided)
            for late in self._undecided.give_up(record, until, self._most_waiting - self._waiting.count):
                self._wait(late)
            until = self._undecided.before(until)
        places: dict[Piece, _Place] = {}
        for change in self._waiting.take(until):
            place = places.get(change.of)
            if place is None:
                place = places[change.of] = self._place(change.of)
            if change.at > self._clock:
                self._move_to(change.at)
            self._losses.forget_until(self._clock)
            self._count(offset, change, place)
        for one in self._transfers.take(self._clock):
            would = one.would
            if one.transferred and would.cause not in KEPT:
                would = Would("transferred", again=would.cause in ("evicted", "peer_and_evicted"))
            self._filled(offset, one.change, would, one.chain)

    def _wait(self, record: ResidencyRecord) -> None:
        """Let the changes of a record wait until they count."""
        for said in record.sources:
            self.hash_groups.says(said)
        self._waiting.add(record, self._order.of(record, self.hash_groups.alone))

    def _place(self, piece: Piece) -> _Place:
        key = self.owners.of(piece)
        return _Place(self._blocks.of(piece.space), key, self.owners.redundancy[key])

    def _forget_sources(self) -> None:
        """Forget sources without a recent change that hold nothing and of which no loss is remembered."""
        for source in self._order.silent_since(self._clock - self._forget_seconds):
            held = self.owners.blocks_of[source] or self._losses.of_source[source]
            waiting = (self._undecided, self._waiting, self._transfers)
            waits = any(each.waits_of(source) for each in waiting)
            if not held and not waits:
                self._order.forget(source)
                self._losses.forget_source(source)
                self.hash_groups.forget(source)
                self._undecided.forget(source)
                for where in [where for where in self._open if where[0] == source]:
                    self.fills.pop(self._open.pop(where), None)

    def set_aside(self, refused: RecordRefused) -> None:
        """Note that it is unknown what a record said of the sources that it names."""
        self._order.set_aside(refused, self._clock)

    def _move_to(self, at: float) -> None:
        """Move the clock, and its window, forward."""
        self._clock = at
        window = times.window_of(self._clock)
        if self.window is not None and window > self.window:
            for steps in self.steps.values():
                if self.window in steps:
                    steps[self.window] = steps[self.window].copy()
            self.on_window_over(self.window, window)
        self.window = window

    def _count(self, offset: int, change: Change, place: _Place) -> None:
        of, kind = change.of, change.kind
        block = place.blocks.get(change.hash)
        if block is None:
            block = place.blocks[change.hash] = Block(of.space, change.hash)
        on_gpu = "gpu" in block.sources.get(of.source, ())
        if kind in FILLS:
            self.prefixes.filled(block, change)
            self.hash_groups.filled(change)
            if of.medium == "gpu":
                would = self._would(block, change)
                if of.receives:
                    self._transfers.add(change, would, block.chain, known=block.known_to(of.source))
                else:
                    self._filled(offset, change, would, block.chain)
                if not on_gpu:
                    self._losses.came_back(block, of.source)
        received = of.source in block.receivers
        changed = self.owners.change(block, of, place.redundancy, kind, change.size)
        if of.medium == "gpu":
            self.prefixes.changed(block)
            if on_gpu and kind in (EVICTED, CLEARED):
                self._losses.lost(block, change, received=received)
        if changed and self.window is not None and place.changed_in != self.window:
            place.changed_in = self.window
            self.versions[place.key] = offset
            self.steps.setdefault(place.key, {})[self.window] = place.redundancy
        if kind not in FILLS:
            self._blocks.forget_if_unused(block)

    def _filled(self, offset: int, change: Change, would: Would, chain: Chain | None) -> None:
        of = change.of
        where = (of.source, of.space)
        key = self._open.get(where)
        window = times.window_of(change.at)
        if key is None or window > key.window:
            if key is not None:
                self._over.append(key)
            space = of.space
            key = FillsOf(window, space.hash_domain, space.model, *of.source, space.group_idx)
            self._open[where] = key
        fills = self.fills.get(key)
        if fills is None:
            fills = self.fills[key] = Fills(offset)
        fills.version = offset
        self._count_fill(fills, change, would)
        self.prefixes.refilled(of.space, chain, would.cause, change.size)
        if of.trust != fills.trust:
            fills.trust = max(fills.trust, of.trust, key=TRUST_ORDER.index)
        if change.at < self.losses_known_from:
            fills.early = True
        self.touched.add(key)

    def _count_fill(self, fills: Fills, change: Change, would: Would) -> None:
        """Count a fill, its regret, and the extra cache that would have kept it."""
        fills.blocks[would.cause] += 1
        fills.tokens[would.cause] += change.size
        fills.transferred_again += change.size if would.again else 0
        fills.at_receivers[would.cause] += change.size if would.at_receivers else 0
        if would.regret is not None:
            count_seconds(fills.regret_hist, would.regret)
        # A block of no tokens needs no cache: it makes no bucket, and no row.
        if would.needed is not None and change.size:
            # The first k for which 2^k is at least as much.
            bucket = min((would.needed - 1).bit_length() if would.needed else 0, LAST_NEEDED)
            count_in(fills.needed_hist, bucket, change.size)
        if would.cause == "cold" and self._may_be_alone:
            fills.cold_or_unknown["blocks"] += 1
            fills.cold_or_unknown["tokens"] += change.size

    def _would(self, block: Block, change: Change) -> Would:
        """Return why the block was filled, provided that it was computed."""
        of, source = change.of, change.of.source
        held = block.sources.get(source)
        if change.kind == RETURNED:
            return Would("reannounced")
        if held:
            return Would("reannounced" if "gpu" in held else "promoted")
        if change.kind == GENERATED:
            return Would("generated")
        by_others = block.held_by_others(source, receivers=of.receives)
        own = block.losses.get(source)
        if own is not None and not own.evicted:
            return Would("cleared")
        if own is not None:
            kept = own.session_number == of.session_number and not self._losses.cleared_since(source, own)
            needed = None
            if kept and own.stored is not None and change.stored is not None:
                needed = max(change.stored - own.stored, 0)
            return Would("peer_and_evicted" if by_others else "evicted", change.at - own.at, needed)
        if by_others:
            return Would("peer")
        losses = block.losses.values()
        if any(loss.evicted and (of.receives or not loss.received) for loss in losses):
            return Would("evicted_elsewhere", change.at - block.last_evicted)
        if not all(loss.evicted for loss in losses):
            return Would("cleared")
        if block.held_by_others(source):
            return Would("peer", at_receivers=True)
        if losses:
            return Would("evicted_elsewhere", change.at - block.last_evicted, at_receivers=True)
        if of.trust != "complete" or change.at < of.unsure_until or of.alone:
            return Would("unknown")
        return Would("cold")
