# Copied from schemas/trust.py by `python -m pipeline.generated`.
"""How far you can trust a figure: how complete its source is."""

from typing import Literal

Trust = Literal["complete", "partial", "degraded"]
"""complete: every batch since the engine's first one, or since a clear, was applied.
partial: kvlens started after the engine, so older blocks are unknown.
degraded: batches or events are missing."""

TRUST_ORDER: tuple[Trust, ...] = ("complete", "partial", "degraded")
"""From best to worst; an aggregate is as trustworthy as its worst part."""


def worst(*trusts: Trust) -> Trust:
    """Return the worst of one or more trusts."""
    return max(trusts, key=TRUST_ORDER.index)
