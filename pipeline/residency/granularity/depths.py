"""How deep fine blocks are in their sequences, as far as their chains show."""

from __future__ import annotations

from schemas.pool_checkpoints import FineBlock, GranularState

MANY = 1 << 17
"""Blocks to remember before it is better to start over."""


class Depths:
    """Looks depths up; a chain that leads nowhere is walked once, and not again before it changes."""

    def __init__(self, state: GranularState) -> None:
        self._state = state
        self._unknown: set[int] = set()
        self.looked_at: set[int] = set()
        """Blocks that answers rest on: call `forget` if one of them comes, leaves or gets another parent."""

    @property
    def many(self) -> bool:
        """Whether much is remembered, most of it about blocks that nobody asks for any more."""
        return len(self.looked_at) > MANY

    def forget(self) -> None:
        """Forget all answers, as chains changed."""
        self._unknown.clear()
        self.looked_at.clear()

    def of(self, block: int) -> int | None:
        """Return how many fine blocks the sequence has up to and including this one, if that is known.

        A parent may be announced (again) after its child, so depths are looked up when they are needed. A
        cyclic chain, which no engine makes, has no depth.
        """
        path: dict[int, FineBlock] = {}
        at: int | None = block
        depth: int | None = None
        while at is not None and at not in self._unknown:
            fine = self._state.fine.get(at)
            if fine is None or at in path:
                break
            if fine.depth is not None:
                depth = fine.depth
                break
            path[at] = fine
            at = fine.parent
        self.looked_at.add(block)
        if depth is None:
            self._unknown.update(path)
            self.looked_at.update(path)
            if at is not None:
                self._unknown.add(at)
                self.looked_at.add(at)
            return None
        for fine in reversed(path.values()):
            depth += 1
            fine.depth = depth
        return depth
