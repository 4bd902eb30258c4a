"""How much of each prefix several sources hold, and how much was filled again in the open window."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from pipeline.verify.fleet.changes import Block, Change
from pipeline.verify.fleet.owners import Held, Owners
from pipeline.verify.fleet.parsed import Chain

_FORGET_FROM = 10_000
"""Number of chains from which on those that no longer matter are forgotten."""
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


@dataclass
class _Shown:
    """What the blocks of a prefix that are held on GPUs add up to."""

    tokens: Counter[int] = field(default_factory=Counter)
    """By number of owners."""
    blocks: Counter[int] = field(default_factory=Counter)
    """By number of owners."""
    depths: Counter[int] = field(default_factory=Counter)
    """Blocks with more than one owner, by depth."""

    def add(self, owners: int, size: int, depth: int, times: int) -> None:
        self.tokens[owners] += times * size
        self.blocks[owners] += times
        if owners > 1:
            self.depths[depth] += times

    def hot(self) -> Hot:
        shared = [(owners, tokens) for owners, tokens in self.tokens.items() if owners > 1]
        return Hot(
            depth_blocks=max((depth for depth, blocks in self.depths.items() if blocks), default=0),
            owners=max((owners for owners, blocks in self.blocks.items() if blocks), default=0),
            shared_tokens=sum(tokens for _, tokens in shared),
            duplicated_tokens=sum((owners - 1) * tokens for owners, tokens in shared),
        )


class Prefixes:
    """Chains of the blocks that are held or remembered, as the first fill on a GPU that knew it said."""

    def __init__(self, owners: Owners, lost: Callable[[Block], bool]) -> None:
        """`lost`: whether a loss of the block is remembered."""
        self._owners = owners
        self._lost = lost
        self._chains: dict[Block, Chain] = {}
        self._refilled: dict[Prefix, Hot] = {}
        self._shown: dict[Prefix, _Shown] = {}
        self._counted: dict[Block, tuple[Prefix, int, int, int]] = {}
        """What each block adds: prefix, owners, size, depth."""
        self._forget_at = _FORGET_FROM

    def filled(self, change: Change) -> None:
        """Note the chain of a block that is about to come to a medium; nothing else is noted of it yet."""
        block = change.block
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
            hot = self._refilled.setdefault(_prefix(change.block, chain), Hot())
            hot.refilled_tokens += change.size
            hot.depth_blocks = max(hot.depth_blocks, chain.depth)

    def changed(self, block: Block) -> None:
        """Count a block as it is now, and no longer as it was."""
        counted = self._counted.pop(block, None)
        if counted is not None:
            prefix, owners, size, depth = counted
            self._shown[prefix].add(owners, size, depth, -1)
            if not any(self._shown[prefix].blocks.values()):
                del self._shown[prefix]
        chain, held = self._chains.get(block), self._owners.blocks.get(block)
        owners = held.owners("gpu") if held is not None else 0
        if chain is not None and held is not None and owners:
            prefix = _prefix(block, chain)
            self._counted[block] = prefix, owners, held.sizes["gpu"], chain.depth
            self._shown.setdefault(prefix, _Shown()).add(owners, held.sizes["gpu"], chain.depth, +1)

    def take(self) -> dict[Prefix, Hot]:
        """Return the figures at the end of a window, and begin those of the next one."""
        self._forget()
        refilled, self._refilled = self._refilled, {}
        found = {prefix: shown.hot() for prefix, shown in self._shown.items()}
        for prefix, again in refilled.items():
            hot = found.setdefault(prefix, Hot())
            hot.refilled_tokens = again.refilled_tokens
            hot.depth_blocks = max(hot.depth_blocks, again.depth_blocks)
        return {prefix: hot for prefix, hot in found.items() if hot.counts}

    def _forget(self) -> None:
        """Forget, now and then, the chains of blocks that are neither held nor remembered."""
        if len(self._chains) > self._forget_at:
            self._chains = {
                block: chain
                for block, chain in self._chains.items()
                if block in self._owners.blocks or self._lost(block)
            }
            self._forget_at = 2 * len(self._chains) + _FORGET_FROM


def _prefix(block: Block, chain: Chain) -> Prefix:
    return Prefix(block.hash_domain, block.model, block.group_idx, chain.lora, chain.root)
