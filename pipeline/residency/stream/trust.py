"""How complete the knowledge of a source is, per medium, and since when; media not named share one value."""

from __future__ import annotations

from collections.abc import Set

from schemas.checkpoints import SourceHead, TrustSince, TrustState
from schemas.events import MOST_REMARKS, is_kept_once
from schemas.reasons import Remark
from schemas.trust import TRUST_ORDER

CONTRADICTION: Remark = "contradiction"
ALL_OTHERS = ""
"""Stands for the media that are not named."""


def of(trust: TrustState, medium: str) -> TrustSince:
    """Return the trust of one medium; one that outlives engines is never complete."""
    return _at_best(medium, trust.by_medium.get(medium, trust.general))


def anything_complete(trust: TrustState) -> bool:
    """Return whether some medium may be complete."""
    return any(since.trust == "complete" for since in (trust.general, *trust.by_medium.values()))


def worst(trust: TrustState, media: Set[str]) -> TrustSince:
    """Return the worst trust among the given media, since the first of them has it; without any, the
    general one."""
    return max((of(trust, medium) for medium in media), key=_badness, default=trust.general)


def in_window(trust: TrustState, medium: str) -> TrustSince:
    """Return the worst trust that one medium had in the open window."""
    now = of(trust, medium)
    return max(now, _passed(trust, medium) or now, key=_badness)


def worst_in_window(trust: TrustState, media: Set[str]) -> TrustSince:
    """Return the worst trust that any of the given media had in the open window; without any, of the rest."""
    return max((in_window(trust, medium) for medium in media or {ALL_OTHERS}), key=_badness)


def note_present(trust: TrustState) -> dict[str, TrustSince]:
    """Note the present trust of every medium as one it had in the open window; return all those noted."""
    for medium in {*trust.by_medium, *trust.passed} - {ALL_OTHERS}:
        _pass(trust, medium)
    _pass(trust, ALL_OTHERS)  # last, because it stands in for media of which nothing was noted before
    return trust.passed


def first_batch(trust: TrustState, at: float) -> None:
    """Date what is known of this session back to its first batch, which may have come by replay."""
    general = trust.general
    trust.general = TrustSince(general.trust, min(general.since, at))


def session_began(trust: TrustState, at: float, kept: Set[str]) -> TrustState:
    """Return the trust of a session of whose beginning nothing is known yet, given that of the one before.

    Media that are `kept` stay as they were.
    """
    special = {medium: of(trust, medium) for medium in kept}
    return TrustState(TrustSince("partial", at), special, note_present(trust))


def opened(trust: TrustState, at: float, *, complete: bool) -> TrustState:
    """Return the trust of a session that is known from here on, given that of its beginning."""
    special = {medium: since for medium, since in trust.by_medium.items() if is_kept_once(medium)}
    return TrustState(TrustSince("complete" if complete else "partial", at), special, trust.passed)


def degraded(trust: TrustState, at: float, medium: str | None = None) -> None:
    """Degrade all media, or `medium`, as something is missing; those already degraded keep their time."""
    if medium is not None:
        trust.by_medium[medium] = _worse(of(trust, medium), at)
        return
    trust.general = _worse(trust.general, at)
    trust.by_medium = {medium: _worse(since, at) for medium, since in trust.by_medium.items()}


def cleared(trust: TrustState, media: Set[str], at: float, *, others: Set[str] | None = None) -> None:
    """Make `media`, which are known to be empty, complete from here on.

    With `others`, make all media complete but `others`, which stay as they are.
    """
    if others is not None:
        stay = {medium: of(trust, medium) for medium in others}
        note_present(trust)
        trust.by_medium = stay
        trust.general = _complete(trust.general, at)
    else:
        for medium in media:
            _pass(trust, medium)
            trust.by_medium[medium] = _complete(of(trust, medium), at)


def contradicted(head: SourceHead, medium: str, at: float) -> None:
    """Degrade a medium of which something is wrong since event time `at`, and remark that of the source."""
    degraded(head.trust, max(at, of(head.trust, medium).since), medium)
    if CONTRADICTION not in head.remarks:
        head.remarks = [*head.remarks, CONTRADICTION][:MOST_REMARKS]


def _pass(trust: TrustState, medium: str) -> None:
    trust.passed[medium] = in_window(trust, medium)


def _passed(trust: TrustState, medium: str) -> TrustSince | None:
    passed = trust.passed.get(medium, trust.passed.get(ALL_OTHERS))
    return None if passed is None else _at_best(medium, passed)


def _at_best(medium: str, since: TrustSince) -> TrustSince:
    if is_kept_once(medium) and since.trust == "complete":
        return TrustSince("partial", since.since)
    return since


def _badness(since: TrustSince) -> tuple[int, float]:
    return TRUST_ORDER.index(since.trust), -since.since


def _worse(since: TrustSince, at: float) -> TrustSince:
    return since if since.trust == "degraded" else TrustSince("degraded", at)


def _complete(since: TrustSince, at: float) -> TrustSince:
    return since if since.trust == "complete" else TrustSince("complete", at)
