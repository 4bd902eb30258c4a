"""A prefix cache that is obvious: blocks in a dictionary in order of last use, counted one by one."""

from __future__ import annotations

from collections.abc import Hashable, Sequence


class SlowLru:
    """Holds `capacity` tokens in blocks of `block_size`, None for endless.

    A request keeps what it hits, makes room before it stores, and is used last at its beginning, tail first.
    """

    def __init__(self, block_size: int, capacity: int | None = None) -> None:
        self.block_size = block_size
        self.room = None if capacity is None else capacity // block_size
        self.held: dict[Hashable, None] = {}
        self.blocks = self.hit_blocks = self.tokens = self.hit_tokens = 0

    def serve(self, ids: Sequence[Hashable], input_length: int) -> None:
        hits = 0
        while hits < len(ids) and ids[hits] in self.held:
            self._use(ids[hits])
            hits += 1
        while self.room is not None and len(self.held) + len(ids) - hits > self.room:
            del self.held[next(iter(self.held))]
        for block in reversed(ids):
            self._use(block)
        self.blocks += len(ids)
        self.hit_blocks += hits
        self.tokens += input_length
        self.hit_tokens += min(hits * self.block_size, input_length)

    def __add__(self, other: SlowLru) -> SlowLru:
        """Return the counts of both, without what they hold."""
        both = SlowLru(self.block_size)
        for name in ("blocks", "hit_blocks", "tokens", "hit_tokens"):
            setattr(both, name, getattr(self, name) + getattr(other, name))
        return both

    @property
    def rates(self) -> tuple[float, float]:
        """Hits per lookup in blocks and in tokens, 0 to 1."""
        return self.hit_blocks / self.blocks, self.hit_tokens / self.tokens

    def _use(self, block: Hashable) -> None:
        self.held.pop(block, None)
        self.held[block] = None
