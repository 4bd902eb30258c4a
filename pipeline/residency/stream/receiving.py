"""Whether KV that others computed comes to an engine: what its role says, and what it counts."""

from __future__ import annotations

from schemas.checkpoints import SourceHead
from schemas.events import EngineCounters

RECEIVING = frozenset({"decode", "both"})
"""Roles in which an engine takes KV from others."""
ENOUGH_TOKENS = 1 << 14
"""An engine that computed so many of prompts in a session, and to which none came, receives none: a few
prompts may be computed before the first pull, or without one."""


def life_began(head: SourceHead) -> None:
    """Another session counts from the beginning."""
    head.transferred = None


def may_tell(head: SourceHead, counters: EngineCounters) -> bool:
    """Tell whether these counters decide on what came before them, or change what is known."""
    return counters.transferred_tokens is not None and (
        head.transferred is None or (not head.transferred and counters.transferred_tokens > 0)
    )


def counted(head: SourceHead, counters: EngineCounters) -> None:
    """The engine says what came to it: counters of which `may_tell` is true."""
    head.counts_transfers = True
    if counters.transferred_tokens:
        head.transferred = True
    elif head.transferred is None and (counters.computed_tokens or 0) >= ENOUGH_TOKENS:
        head.transferred = False


def receives(head: SourceHead) -> bool:
    """Return whether KV may come, as far as is known.

    What the engine counts says so, as labels say `decode` and `both` of engines that share nothing; but
    prefill engines count the few tokens of transfers that they send.
    """
    if head.role == "prefill":
        return False
    return head.role in RECEIVING if head.transferred is None else head.transferred


def is_open(head: SourceHead) -> bool:
    """Return whether only what the engine counts next tells: no role does, nor what it counted so far."""
    return head.counts_transfers and head.transferred is None and not head.role
