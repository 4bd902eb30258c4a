"""What a simulated engine reports about its cache, before any wire format."""

from __future__ import annotations

from dataclasses import dataclass

Medium = str
"""`gpu` or `cpu`; the era decides how it is spelled on the wire."""


@dataclass(frozen=True, slots=True)
class Stored:
    """Blocks became resident, in chain order. Digests are the engine's internal 32 bytes."""

    digests: tuple[bytes, ...]
    parent: bytes | None
    tokens: tuple[int, ...]
    block_size: int
    medium: Medium = "gpu"
    group: int = 0
    spec_kind: str = "full_attention"
    lora_id: int | None = None
    lora_name: str | None = None
    session: str | None = None


@dataclass(frozen=True, slots=True)
class Removed:
    """Cached entries left the medium, one physical copy for each digest, in the order of eviction."""

    digests: tuple[bytes, ...]
    medium: Medium = "gpu"
    group: int = 0


@dataclass(frozen=True, slots=True)
class Cleared:
    """The GPU pool, or all tiers, were reset; no Removed events name what was in them."""


Event = Stored | Removed | Cleared
