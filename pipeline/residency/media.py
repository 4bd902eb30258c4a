"""What is special about a medium: who announces its removals, and what a clear empties."""

from __future__ import annotations

STORE_ONLY = frozenset({"storage", "fs", "obj"})
"""Tiers whose removals no released engine announces (vLLM tiering since 0.26)."""


def is_store_only(medium: str, raw_medium: str | None) -> bool:
    """Return whether blocks are announced on this medium but, as far as known, never removed.

    Connectors that only ever store (LMCache, Mooncake) spell their medium "cpu" in lower case.
    """
    return medium in STORE_ONLY or (medium == "cpu" and raw_medium == "cpu")
