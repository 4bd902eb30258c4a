"""What sources lost from their GPUs, as far back as it is remembered."""

from __future__ import annotations

from collections import Counter, deque
from typing import NamedTuple

from pipeline.verify.fleet.changes import Block, Change, SourceId
from schemas.residency import EVICTED


class Loss(NamedTuple):
    """One block that one source lost."""

    number: int
    evicted: bool
    """Else it was cleared."""
    at: float
    life: int
    """Of the source."""
    stored: int | None
    """Tokens stored in the pool before."""


class Losses:
    """The latest loss of each block and source, until it comes back or is the oldest and too much."""

    def __init__(self, horizon: float, most: int) -> None:
        """`horizon`: seconds of event time for which a loss is remembered. `most`: losses, and of them also
        those whose blocks came back."""
        self._horizon = horizon
        self._most = most
        self._of: dict[Block, dict[SourceId, Loss]] = {}
        self._queue: deque[tuple[Block, SourceId, Loss]] = deque()
        self._numbers = 0
        self._last_evicted: dict[Block, float] = {}
        self._last_cleared: dict[SourceId, int] = {}
        self.losses_of: Counter[SourceId] = Counter()
        """How many losses are remembered of each source."""

    def of(self, block: Block) -> dict[SourceId, Loss]:
        """Return who lost the block."""
        return self._of.get(block, {})

    def last_evicted(self, block: Block) -> float:
        """Return when anybody last evicted a block that is remembered."""
        return self._last_evicted[block]

    def cleared_since(self, source: SourceId, loss: Loss) -> bool:
        """Return whether the source lost a block by a clear or restart after this loss of its own."""
        return self._last_cleared.get(source, 0) > loss.number

    def lost(self, change: Change) -> None:
        """Remember a loss."""
        if len(self._queue) >= self._most:
            self._forget_oldest()
        self._numbers += 1
        evicted = change.kind == EVICTED
        loss = Loss(self._numbers, evicted, change.at, change.life, change.stored)
        of_block = self._of.setdefault(change.block, {})
        self.losses_of[change.source] += change.source not in of_block
        of_block[change.source] = loss
        self._queue.append((change.block, change.source, loss))
        if evicted:
            self._last_evicted[change.block] = change.at
        else:
            self._last_cleared[change.source] = loss.number

    def came_back(self, block: Block, source: SourceId) -> None:
        """Forget what the source lost; it still counts in the queue."""
        self._forget(block, source)

    def forget_until(self, clock: float) -> None:
        """Forget the oldest as long as it is too old at this event time."""
        while self._queue and clock - self._queue[0][2].at > self._horizon:
            self._forget_oldest()

    def forget_source(self, source: SourceId) -> None:
        """Forget when a source of which no loss is remembered was cleared."""
        self._last_cleared.pop(source, None)

    def _forget_oldest(self) -> None:
        block, source, loss = self._queue.popleft()
        if self.of(block).get(source) == loss:
            self._forget(block, source)

    def _forget(self, block: Block, source: SourceId) -> None:
        losses = self._of.get(block, {})
        if losses.pop(source, None) is not None:
            self.losses_of[source] -= 1
        if not losses:
            self._of.pop(block, None)
            self._last_evicted.pop(block, None)
