"""Whether an engine receives KV that others computed, by its role and by what it counts."""

from __future__ import annotations

from schemas.checkpoints import SourceHead
from schemas.events import EngineCounters

RECEIVING = frozenset({"decode", "both"})
"""Roles in which an engine takes KV from others."""
ENOUGH_TOKENS = 1 << 14
"""An engine that computed this many prompt tokens in a session and received none does not receive: a few
prompts may be computed before the first pull, or without one."""


def may_decide(head: SourceHead, counters: EngineCounters) -> bool:
    """Return whether these counters may decide on what came before them, or change what is known."""
    return counters.transferred_tokens is not None and (
        head.transferred is None or (not head.transferred and counters.transferred_tokens > 0)
    )


def take_over(head: SourceHead, counters: EngineCounters) -> None:
    """Take over counters for which `may_decide` is true: what the engine received."""
    head.counts_transfers = True
    if counters.transferred_tokens:
        head.transferred = True
    elif head.transferred is None and (counters.computed_tokens or 0) >= ENOUGH_TOKENS:
        head.transferred = False


def receives(head: SourceHead) -> bool:
    """Return whether the engine may receive KV, as far as is known.

    Its counters decide, as engines that share nothing are labelled `decode` and `both`, too. Not so for
    prefill engines: they count the few tokens of transfers that they send.
    """
    if head.role == "prefill":
        return False
    return head.role in RECEIVING if head.transferred is None else head.transferred


def is_undecided(head: SourceHead) -> bool:
    """Return whether only the engine's next counters can decide: neither a role nor those so far do."""
    return head.counts_transfers and head.transferred is None and not head.role
