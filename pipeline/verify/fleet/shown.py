"""What a row of `hot_prefixes_10s` says, and what the blocks of its prefix add up to."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple


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
class Shown:
    """What the blocks of a prefix that are held on GPUs add up to."""

    prefix: Prefix
    tokens: Counter[int] = field(default_factory=Counter)
    """By number of owners."""
    blocks: Counter[int] = field(default_factory=Counter)
    """By number of owners."""
    depths: Counter[int] = field(default_factory=Counter)
    """Blocks with more than one owner, by depth."""
    held: int = 0
    """Blocks."""

    def add(self, owners: int, size: int, depth: int, times: int) -> None:
        """Add a block `times` times: -1 takes it out."""
        self.held += times
        self.tokens[owners] += times * size
        self.blocks[owners] += times
        if owners > 1:
            self.depths[depth] += times

    def hot(self) -> Hot:
        """Return the figures."""
        shared = [(owners, tokens) for owners, tokens in self.tokens.items() if owners > 1]
        return Hot(
            depth_blocks=max((depth for depth, blocks in self.depths.items() if blocks), default=0),
            owners=max((owners for owners, blocks in self.blocks.items() if blocks), default=0),
            shared_tokens=sum(tokens for _, tokens in shared),
            duplicated_tokens=sum((owners - 1) * tokens for owners, tokens in shared),
        )
