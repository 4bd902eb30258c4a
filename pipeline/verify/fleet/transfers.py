"""Which fills of sources that receive KV were transferred, by the rules of docs/figures.md."""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from typing import NamedTuple

from pipeline.verify.fleet.changes import Change
from pipeline.verify.fleet.parsed import Chain
from pipeline.verify.fleet.split_mix import mixed
from pipeline.verify.keys import SourceId
from schemas.residency import Decisions

LATER = 60.0
"""Seconds of event time by which all shards that decide must be past an undecided run to give it up."""
MOST = 1 << 20
"""Fills that wait, at most."""


def run_of(end: int, at: float, source: SourceId, incarnation: int, group_idx: int) -> int:
    """Return the id of a run, which is the same in all shards: never 0, which stands for no run, nor odd."""
    said = "\0".join(map(str, (*source, incarnation, group_idx)))
    digest = blake2b(said.encode(errors="surrogatepass"), digest_size=8).digest()
    salt = int.from_bytes(digest, "little")
    when = mixed(int(at * 1e6) ^ salt) or 1
    return (mixed(end ^ when ^ salt) | 2) & ~1


class Would(NamedTuple):
    """The cause under which a fill counts, or would count if it was computed."""

    cause: str
    regret: float | None = None
    """Seconds since the block was lost."""
    needed: int | None = None
    """Tokens of extra cache that would have kept it."""
    again: bool = False
    """Whether it was transferred, and had been evicted here."""
    at_receivers: bool = False
    """Whether only sources that receive KV hold or evicted it, and this one does not."""


@dataclass
class WaitingFill:
    """A fill that does not count yet."""

    change: Change
    would: Would
    chain: Chain | None
    run: int
    transferred: bool | None
    """None: nobody has decided."""


class Transfers:
    """Fills that wait, in the order in which they will count."""

    def __init__(self, shards: int) -> None:
        """`shards`: how many there are; a single one decides alone."""
        self._shards = shards
        self._waiting: deque[WaitingFill] = deque()
        self._known: dict[int, bool] = {}
        """Whether the last block of a run was stored before; of two runs with one id the first decides."""
        self._decided_to: dict[int, float] = {}

    def add(self, change: Change, would: Would, chain: Chain | None, *, known: bool) -> None:
        """Let a fill wait; `known`: its block was stored before, by any source."""
        of = change.of
        run = 0
        if change.end:
            run = run_of(change.end, change.at, of.source, of.incarnation, of.space.group_idx)
        last = not run or change.end == change.hash
        if run and last:
            self._known.setdefault(run, known)
        self._waiting.append(
            WaitingFill(change, would, chain, run, False if not known else True if last else None)
        )

    def decided(self, decisions: Decisions) -> None:
        """Note what another shard decided."""
        runs = struct.unpack(f"<{len(decisions.known)}Q", decisions.runs)
        for run, known in zip(runs, map(bool, decisions.known), strict=True):
            self._known.setdefault(run, known)
        before = self._decided_to.get(decisions.shard, 0.0)
        self._decided_to[decisions.shard] = max(before, decisions.decided_to)

    def waits_of(self, source: SourceId) -> bool:
        """Return whether a fill of a source waits."""
        return any(one.change.of.source == source for one in self._waiting)

    def take(self, clock: float) -> Iterator[WaitingFill]:
        """Yield those that count now, at event time `clock` of this shard."""
        alone = clock if self._shards == 1 else 0.0
        passed = min(self._decided_to.values(), default=alone) - LATER
        too_many = len(self._waiting) - MOST
        for place, one in enumerate(self._waiting):
            if one.transferred is None:
                one.transferred = self._known.get(one.run)
            if one.transferred is None and (one.change.at < passed or place < too_many):
                one.transferred = False
        while self._waiting and self._waiting[0].transferred is not None:
            yield self._waiting.popleft()
