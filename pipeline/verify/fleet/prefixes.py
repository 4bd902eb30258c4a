"""What of each prefix several sources hold, and what of it was filled again in the open window."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from pipeline.verify.fleet.changes import Block, Change
from pipeline.verify.fleet.owners import Held, Owners
from pipeline.verify.fleet.parsed import Chain

AVOIDABLE = ("peer", "peer_and_evicted", "evicted", "evicted_elsewhere", "cleared")


class Prefix(NamedTuple):
    """What a row of `hot_prefixes_10s` is about."""

    hash_domain: str
    model: str
    group_idx: int
    lora: str
    root: int


@dataclass
class Hot:
    """The figures of such a row."""

    depth_blocks: int = 0
    owners: int = 0
    shared_tokens: int = 0
    duplicated_tokens: int = 0
    refilled_tokens: int = 0

    @property
    def counts(self) -> bool:
        """Whether there is anything to list."""
        return self.duplicated_tokens > 0 or self.refilled_tokens > 0


class Prefixes:
    """Chains of the blocks that are held or remembered, as the first fill on a GPU that knew it said."""

    def __init__(self, owners: Owners, lost: Callable[[Block], bool]) -> None:
        """`lost`: whether a loss of the block is remembered."""
        self._owners = owners
        self._lost = lost
        self._chains: dict[Block, Chain] = {}
        self._models: dict[tuple[str, int], str] = {}
        self._refilled: dict[Prefix, Hot] = {}

    def filled(self, change: Change) -> None:
        """Note the chain of a block that is about to come to a medium; nothing else is noted of it yet."""
        block = change.block
        self._models.setdefault((block.hash_domain, block.group_idx), change.model)
        held = self._owners.blocks.get(block, Held())
        certain = any("gpu" in media or any(media.values()) for media in held.sources.values())
        if not certain and not self._lost(block):
            self._chains.pop(block, None)
        if change.medium == "gpu" and change.chain.root:
            self._chains.setdefault(block, change.chain)

    def refilled(self, change: Change, cause: str) -> None:
        """Count a fill, if it could have been avoided."""
        chain = self._chains.get(change.block)
        if chain is not None and cause in AVOIDABLE:
            hot = self._refilled.setdefault(self._prefix(change.block, chain), Hot())
            hot.refilled_tokens += change.size
            hot.depth_blocks = max(hot.depth_blocks, chain.depth)

    def take(self) -> dict[Prefix, Hot]:
        """Return the figures at the end of a window; nothing was filled again yet in the next one."""
        found, self._refilled = self._refilled, {}
        for block, chain in list(self._chains.items()):
            if block not in self._owners.blocks and not self._lost(block):
                del self._chains[block]
            elif block in self._owners.blocks:
                held = self._owners.blocks[block]
                hot = found.setdefault(self._prefix(block, chain), Hot())
                owners = held.owners("gpu")
                hot.owners = max(hot.owners, owners)
                if owners > 1:
                    hot.shared_tokens += held.sizes["gpu"]
                    hot.duplicated_tokens += (owners - 1) * held.sizes["gpu"]
                    hot.depth_blocks = max(hot.depth_blocks, chain.depth)
        return {prefix: hot for prefix, hot in found.items() if hot.counts}

    def _prefix(self, block: Block, chain: Chain) -> Prefix:
        model = self._models[block.hash_domain, block.group_idx]
        return Prefix(block.hash_domain, model, block.group_idx, chain.lora, chain.root)
