"""The figures of the fleet tables from docs/figures.md, by brute force over plain dicts: slow and obvious.

Knows nothing of the pipeline's code but the form of its records; the order of the log decides.
"""

from __future__ import annotations

import math
import struct
from collections import defaultdict
from typing import Any, NamedTuple

WINDOW = 10
TRUSTS = ["complete", "partial", "degraded"]
FILLED, EVICTED, CLEARED, EXPIRED, SUBSUMED = range(5)
STORE_ONLY = {"storage", "fs", "obj"}


class Loss(NamedTuple):
    number: int
    cause: str
    at: float
    life: int
    stored: int | None


class Change(NamedTuple):
    due: float
    source: tuple[str, int]
    life: int
    block: tuple[str, int, int]
    medium: str
    announced: bool
    kind: int
    at: float
    size: int
    stored: int | None
    trust: str
    unsure_until: float
    model: str


class Oracle:
    def __init__(self, horizon: float = 3600.0, ghosts: int = 2_000_000) -> None:
        self.horizon, self.ghosts = horizon, ghosts
        self.holding: dict[Any, dict[Any, dict[str, bool]]] = defaultdict(dict)
        """block -> source -> medium -> announced"""
        self.lost: dict[Any, dict[Any, Loss]] = defaultdict(dict)
        """block -> source -> remembered loss"""
        self.queue: list[tuple[int, Any, Any, float]] = []
        self.numbers = 0
        self.last_evicted: dict[Any, float] = {}
        self.clock = -math.inf
        self.incarnations: dict[Any, int] = {}
        self.lives: defaultdict[Any, int] = defaultdict(int)
        self.seen: dict[Any, float] = {}
        self.trust: dict[Any, str] = {}
        self.unsure: dict[Any, float] = {}
        self.windows: dict[Any, int] = {}
        self.sizes: dict[Any, int] = {}
        self.fills: dict[Any, dict[str, Any]] = {}
        self.needed: dict[Any, list[int]] = {}
        self.places: set[tuple[str, str, int]] = set()
        """(hash domain, medium, group) that ever held something."""
        self.redundancy: dict[Any, dict[int, dict[str, int]]] = {}
        """(hash domain, medium, group) -> window -> figures at its end, where something changed in it."""

    def apply(self, record: Any) -> None:
        window: int | None = None
        for change in self._ordered(record):
            if window is not None and max(self.clock, change.at) // WINDOW > window:
                self._note_redundancy(window)
            self._apply(change)
            window = int(self.clock // WINDOW)
        if window is not None:
            self._note_redundancy(window)

    def _note_redundancy(self, window: int) -> None:
        figures = self._redundancy()
        for place in self.places:
            self.redundancy.setdefault(place, {})[window] = dict(figures.get(place, {}))

    def _ordered(self, record: Any) -> list[Change]:
        changes: list[Change] = []
        latest: dict[Any, tuple[int, float]] = {}
        for source in record.sources:
            name = (source.replica, source.dp_rank)
            if source.incarnation > self.incarnations.get(name, 0):
                self.incarnations[name] = source.incarnation
                self.lives[name] += 1
            life = self.lives[name]
            self.trust[name] = source.trust
            unsure_until = self.unsure.get(name, 0.0)
            for pool in source.changes:
                count = len(pool.kinds)
                hashes = struct.unpack(f">{count}Q", pool.hashes)
                times = struct.unpack(f"<{count}d", pool.times)
                sizes = struct.unpack(f"<{count}I", pool.block_sizes)
                stored = struct.unpack(f"<{count}I", pool.stored) if pool.stored else [None] * count
                floor = -math.inf
                if name in latest and latest[name][0] != life:
                    floor = latest[name][1]
                due = floor
                of_pool = []
                filled: dict[int, int] = {}
                for place, (block, kind, at, size, before) in enumerate(
                    zip(hashes, pool.kinds, times, sizes, stored, strict=True)
                ):
                    due = max(due, at)
                    of_pool.append(
                        Change(
                            due,
                            name,
                            life,
                            (source.hash_domain, pool.group_idx, block),
                            pool.medium,
                            not pool.store_only and pool.medium not in STORE_ONLY,
                            kind,
                            at,
                            size,
                            None if before is None else before + pool.stored_before,
                            source.trust,
                            unsure_until,
                            source.model,
                        )
                    )
                    if kind == FILLED:
                        filled[block] = place
                    elif kind == SUBSUMED and block in filled:
                        of_pool[filled.pop(block)] = of_pool[place] = None  # type: ignore[call-overload]
                if of_pool:
                    known = latest.get(name, (life, -math.inf))
                    latest[name] = (life, max(known[1] if known[0] == life else floor, due))
                    self.seen[name] = max(self.seen.get(name, 0.0), *times)
                changes += [change for change in of_pool if change is not None]
            if source.trust != "complete" and name in self.seen:
                self.unsure[name] = self.seen[name] + self.horizon
        return sorted(changes, key=lambda change: change.due)

    def _forget_old(self) -> None:
        while self.queue and self.clock - self.queue[0][3] > self.horizon:
            self._forget(*self.queue.pop(0)[:3])

    def _forget(self, number: int, block: Any, source: Any) -> None:
        loss = self.lost[block].get(source)
        if loss is not None and loss.number == number:
            del self.lost[block][source]

    def _apply(self, change: Change) -> None:
        self.clock = max(self.clock, change.at)
        self._forget_old()
        block, source = change.block, change.source
        held = self.holding[block].get(source, {})
        if change.kind == FILLED:
            if change.medium == "gpu":
                self._count(change, held)
                if "gpu" not in held:
                    self.lost[block].pop(source, None)
            self.holding[block].setdefault(source, {})[change.medium] = change.announced
            self.sizes.setdefault(block, change.size)
            self.places.add((block[0], change.medium, block[1]))
        elif change.medium in held:
            del held[change.medium]
            if not held:
                del self.holding[block][source]
            if change.medium == "gpu" and change.kind in (EVICTED, CLEARED):
                if len(self.queue) >= self.ghosts:
                    self._forget(*self.queue.pop(0)[:3])
                self.numbers += 1
                cause = "evicted" if change.kind == EVICTED else "cleared"
                self.lost[block][source] = Loss(self.numbers, cause, change.at, change.life, change.stored)
                self.queue.append((self.numbers, block, source, change.at))
                if cause == "evicted":
                    self.last_evicted[block] = change.at

    def _count(self, change: Change, held: dict[str, bool]) -> None:
        block, source = change.block, change.source
        cell = (source, block[0], block[1])
        window = max(int(change.at // WINDOW), self.windows.get(cell, -(10**18)))
        self.windows[cell] = window
        place = (window, block[0], change.model, *source, block[1])
        fills = self.fills.setdefault(
            place,
            {"blocks": defaultdict(int), "tokens": defaultdict(int), "regret": defaultdict(int), "trust": 0},
        )
        others = any(any(media.values()) for other, media in self.holding[block].items() if other != source)
        own = self.lost[block].get(source)
        elsewhere = [loss.cause for other, loss in self.lost[block].items() if other != source]
        regret: float | None = None
        if "gpu" in held:
            cause = "reannounced"
        elif held:
            cause = "promoted"
        elif own is not None and own.cause == "evicted":
            cause = "peer_and_evicted" if others else "evicted"
            regret = change.at - own.at
            if own.life == change.life and own.stored is not None and change.stored is not None:
                more = max(change.stored - own.stored, 0)
                needed = self.needed.setdefault(place, [0] * 48)
                needed[min(47, max(0, math.ceil(math.log2(more)) if more else 0))] += change.size
        elif own is not None:
            cause = "cleared"
        elif others:
            cause = "peer"
        elif "evicted" in elsewhere:
            cause = "evicted_elsewhere"
            regret = change.at - self.last_evicted[block]
        elif "cleared" in elsewhere:
            cause = "cleared"
        elif change.trust != "complete" or change.at < change.unsure_until:
            cause = "unknown"
        else:
            cause = "cold"
        fills["blocks"][cause] += 1
        fills["tokens"][cause] += change.size
        fills["trust"] = max(fills["trust"], TRUSTS.index(change.trust))
        if regret is not None:
            bucket = 0 if regret < 2**-10 else math.floor(math.log2(regret)) + 11
            fills["regret"][min(35, max(0, bucket))] += 1

    def _redundancy(self) -> dict[Any, dict[str, int]]:
        found: dict[Any, dict[str, int]] = defaultdict(lambda: defaultdict(int))
        for block, sources in self.holding.items():
            owners: defaultdict[str, int] = defaultdict(int)
            for media in sources.values():
                for medium in media:
                    owners[medium] += 1
            for medium, count in owners.items():
                place = (block[0], medium, block[1])
                name = "8_up" if count >= 8 else "4_7" if count >= 4 else str(count)
                found[place][f"owners_{name}"] += 1
                found[place]["unique_tokens"] += self.sizes[block]
                found[place]["physical_tokens"] += count * self.sizes[block]
        return found
