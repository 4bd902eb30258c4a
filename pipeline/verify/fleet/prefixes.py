"""How much of each prefix several sources hold, and how much was filled again in the open window."""

from __future__ import annotations

from pipeline.verify.fleet.block import Block
from pipeline.verify.fleet.changes import Change, Space
from pipeline.verify.fleet.parsed import Chain
from pipeline.verify.fleet.shown import Hot, Prefix, Shown

AVOIDABLE = ("peer", "peer_and_evicted", "evicted", "evicted_elsewhere", "cleared")


class Prefixes:
    """Prefixes of the blocks that are held, as given by the first fill on a GPU that knew the chain."""

    def __init__(self) -> None:
        self._refilled: dict[Prefix, Hot] = {}
        self._shown: dict[tuple[Space, str, int], Shown] = {}

    def filled(self, block: Block, change: Change) -> None:
        """Note the chain of a block that is about to come to a medium; nothing else is noted of it yet."""
        if block.chain is not None and not block.losses and not block.certain():
            block.chain = None
        if block.chain is None and change.of.medium == "gpu" and change.chain.root:
            block.chain = change.chain

    def refilled(self, space: Space, chain: Chain | None, cause: str, size: int) -> None:
        """Count a fill, if it could have been avoided."""
        if chain is not None and cause in AVOIDABLE:
            hot = self._refilled.setdefault(_prefix(space, chain), Hot())
            hot.refilled_tokens += size
            hot.depth_blocks = max(hot.depth_blocks, chain.depth)

    def changed(self, block: Block) -> None:
        """Count a block as it is now on GPUs, and no longer as it was."""
        if block.counted is not None:
            shown, owners, size, depth = block.counted
            shown.add(owners, size, depth, -1)
            block.counted = None
            if not shown.held:
                prefix = shown.prefix
                del self._shown[block.space, prefix.lora, prefix.root]
        chain, owners = block.chain, block.counted_owners("gpu")
        if chain is not None and owners:
            key = (block.space, chain.lora, chain.root)
            found = self._shown.get(key)
            if found is None:
                found = self._shown[key] = Shown(_prefix(block.space, chain))
            size = block.sizes["gpu"]
            found.add(owners, size, chain.depth, +1)
            block.counted = found, owners, size, chain.depth

    def take(self) -> dict[Prefix, Hot]:
        """Return the figures at the end of a window, and begin those of the next one."""
        refilled, self._refilled = self._refilled, {}
        found = {shown.prefix: shown.hot() for shown in self._shown.values()}
        for prefix, again in refilled.items():
            hot = found.setdefault(prefix, Hot())
            hot.refilled_tokens = again.refilled_tokens
            hot.depth_blocks = max(hot.depth_blocks, again.depth_blocks)
        return {prefix: hot for prefix, hot in found.items() if hot.counts}


def _prefix(space: Space, chain: Chain) -> Prefix:
    return Prefix(space.hash_domain, space.model, space.group_idx, chain.lora, chain.root)
