"""What sources lost from their GPUs, as far back as it is remembered."""

from __future__ import annotations

from collections import Counter, deque

from pipeline.verify.fleet.block import Block, Blocks, Loss
from pipeline.verify.fleet.changes import Change
from pipeline.verify.keys import SourceId
from schemas.residency import EVICTED


class Losses:
    """The latest loss of each block and source, within `horizon` and `most`, until the block comes back."""

    def __init__(self, blocks: Blocks, horizon: float, most: int) -> None:
        """`horizon`: seconds of event time for which a loss is remembered. `most`: losses remembered, which
        includes those whose blocks came back."""
        self._blocks = blocks
        self._horizon = horizon
        self._most = most
        self._queue: deque[tuple[Block, SourceId, Loss]] = deque()
        self._numbers = 0
        self._last_cleared: dict[SourceId, int] = {}
        self.of_source: Counter[SourceId] = Counter()
        """How many losses are remembered of each source."""

    def cleared_since(self, source: SourceId, loss: Loss) -> bool:
        """Return whether the source lost a block by a clear or restart after this loss of its own."""
        return self._last_cleared.get(source, 0) > loss.number

    def lost(self, block: Block, change: Change, *, received: bool) -> None:
        """Remember a loss; `received`: whether the source received KV when the block came."""
        self._numbers += 1
        evicted = change.kind == EVICTED
        source = change.of.source
        loss = Loss(self._numbers, evicted, received, change.at, change.of.session_number, change.stored)
        self.of_source[source] += source not in block.losses
        block.losses[source] = loss
        self._queue.append((block, source, loss))
        if evicted:
            block.last_evicted = change.at
        else:
            self._last_cleared[source] = loss.number
        # Last, so that a block stays known while an older loss of it is forgotten.
        while len(self._queue) > self._most:
            self._forget_oldest()

    def came_back(self, block: Block, source: SourceId) -> None:
        """Forget a loss, because the source holds the block again."""
        if block.losses.pop(source, None) is not None:
            self.of_source[source] -= 1

    def forget_source(self, source: SourceId) -> None:
        """Forget when a source was last cleared; no loss of it may be remembered."""
        self._last_cleared.pop(source, None)

    def forget_until(self, clock: float) -> None:
        """Forget the losses that are too old at this event time."""
        while self._queue and clock - self._queue[0][2].at > self._horizon:
            self._forget_oldest()

    def _forget_oldest(self) -> None:
        block, source, loss = self._queue.popleft()
        if block.losses.get(source) is loss:
            self.came_back(block, source)
            self._blocks.forget_if_unused(block)
