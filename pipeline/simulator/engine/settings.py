"""How large an engine rank is, and what it does with what it cannot hold."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """Sizes of one engine rank. A block size counts tokens."""

    num_blocks: int = 1200
    block_size: int = 16
    cpu_blocks: int = 0
    step_tokens: int = 2048
    max_running: int = 64
    decode_tokens: int = 1
    """Tokens a running request generates in a step; above 1 a simulated second costs fewer steps."""
    groups: tuple[str, ...] = ("full_attention",)
    fine_block_size: int | None = None
    """Attention groups also announce blocks of this size (hybrid engines); needs cpu_blocks = 0."""
    hash_seed: str = "0"
    receives: bool = False
    """Prompts are computed elsewhere: what the cache lacks of one is pulled; excludes further tiers."""
    pull_steps: int = 2
    """Steps from the one that allocates the blocks of a pulled prompt to the one in which it has arrived."""

    def __post_init__(self) -> None:
        if self.fine_block_size is not None and (self.block_size % self.fine_block_size or self.cpu_blocks):
            raise ValueError(
                f"fine_block_size {self.fine_block_size} must divide block_size {self.block_size}, "
                f"and excludes a CPU tier (cpu_blocks {self.cpu_blocks})"
            )
        if self.receives and (self.fine_block_size is not None or self.cpu_blocks):
            raise ValueError("an engine that pulls its prompts has one block size and no CPU tier")


HYBRID_GROUPS = ("full_attention", "mamba")
