"""Which requests belong together, and when those begin that only have a delay to the previous one; pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.traces.trace import BadField, HashId

_SHARED_TOKENS = 512
"""Where a trace names no sessions, so many tokens count as a system prompt that conversations share."""
_NONE = ("", "-1")


@dataclass(frozen=True, slots=True)
class Placed:
    """The place of a request in its trace."""

    where: str
    seconds: float | None
    delay: float | None
    """Seconds after the previous request of its session."""
    session: str
    chat: str
    continues: str


def seconds_of(placed: Sequence[Placed]) -> list[float]:
    """Return when each begins, seconds; 0 for all where nothing has a time. Raises BadField."""
    timeless = all(each.seconds is None and each.delay is None for each in placed)
    last: dict[str, float] = {}
    found: list[float] = []
    for each in placed:
        at = each.seconds
        if at is None:
            if not (timeless or each.session):
                raise BadField(f"{each.where} has no time, as others have")
            at = last.get(each.session, 0.0) + (each.delay or 0.0)
        if each.session:
            last[each.session] = at
        found.append(at)
    return found


def named(
    placed: Sequence[Placed], ids: Sequence[tuple[HashId, ...]], block_size: int
) -> tuple[list[str], str]:
    """Return the session of each request, and how it is known."""
    if any(each.chat for each in placed):
        before = {each.chat: each.continues for each in placed}
        return [_root(each.chat, before) for each in placed], "chat ids"
    shared = -(-_SHARED_TOKENS // block_size)
    behind = [str(of_one[: shared + 1][-1:]) for of_one in ids]
    if any(each.session for each in placed):
        return [each.session or other for each, other in zip(placed, behind, strict=True)], "session ids"
    return behind, f"the block behind the first {_SHARED_TOKENS} tokens, as the trace names no sessions"


def _root(chat: str, before: dict[str, str]) -> str:
    """Return the first request of a conversation that the trace has."""
    seen = set()
    while (earlier := before.get(chat, "")) not in _NONE and earlier in before and chat not in seen:
        seen.add(chat)
        chat = earlier
    return chat


def unlike_their_turns(placed: Sequence[Placed], ids: Sequence[tuple[HashId, ...]]) -> bool:
    """Return whether sessions have later turns, of which none begins with the block of the turn before."""
    first: dict[str, HashId] = {}
    later = 0
    for each, of_one in zip(placed, ids, strict=True):
        if each.session and of_one:
            if each.session in first:
                later += 1
                if first[each.session] == of_one[0]:
                    return False
            first[each.session] = of_one[0]
    return later > 0
