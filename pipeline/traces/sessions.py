"""Which requests belong together, and when those begin that only have a delay to the previous one; pure."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.traces.requests import ReadRequest
from pipeline.traces.trace import BadField, HashId

_SHARED_TOKENS = 512
"""Where a trace names no sessions, so many tokens count as a system prompt that conversations share."""
_NONE = ("", "-1")


def seconds_of(read: Sequence[ReadRequest], times: Sequence[float | None]) -> list[float]:
    """Return when each begins, by its time in seconds or its delay; 0 for all where nothing has either.

    Raises BadField.
    """
    timeless = all(each.time is None and each.delay is None for each in read)
    last: dict[str, float] = {}
    found: list[float] = []
    for each, at in zip(read, times, strict=True):
        if at is None:
            if not (timeless or each.session):
                raise BadField(f"{each.where} has no time, as others have")
            at = last.get(each.session, 0.0) + (each.delay or 0.0)
        if each.session:
            last[each.session] = at
        found.append(at)
    return found


def named(read: Sequence[ReadRequest], block_size: int) -> tuple[list[str], str]:
    """Return the session of each request, and how it is known."""
    if any(each.chat for each in read):
        before = {each.chat: each.continues for each in read}
        return [_root(each.chat, before) for each in read], "chat ids"
    shared = -(-_SHARED_TOKENS // block_size)
    behind = [str(each.ids[: shared + 1][-1:]) for each in read]
    if any(each.session for each in read):
        return [each.session or other for each, other in zip(read, behind, strict=True)], "session ids"
    return behind, f"the block behind the first {_SHARED_TOKENS} tokens, as the trace names no sessions"


def _root(chat: str, before: dict[str, str]) -> str:
    """Return the first request of a conversation that the trace has."""
    seen = set()
    while (earlier := before.get(chat, "")) not in _NONE and earlier in before and chat not in seen:
        seen.add(chat)
        chat = earlier
    return chat


def unlike_their_turns(read: Sequence[ReadRequest]) -> bool:
    """Return whether sessions have later turns, of which none begins with the block of the turn before."""
    first: dict[str, HashId] = {}
    later = 0
    for each in read:
        if each.session and each.ids:
            if each.session in first:
                later += 1
                if first[each.session] == each.ids[0]:
                    return False
            first[each.session] = each.ids[0]
    return later > 0
