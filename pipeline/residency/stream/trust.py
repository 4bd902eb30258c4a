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
    """Tell whether some medium may be complete."""
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


def left_behind(trust: TrustState) -> dict[str, TrustSince]:
    """Count the present trust of every medium as left behind in the open window; return all that was."""
    for medium in {*trust.by_medium, *trust.passed} - {ALL_OTHERS}:
        _pass(trust, medium)
    _pass(trust, ALL_OTHERS)  # last, because it stands in for media that left nothing before
    return trust.passed


def first_batch(trust: TrustState, at: float) -> None:
    """What is known of this life is known from its first batch on, also when that came by replay."""
    general = trust.general
    trust.general = TrustSince(general.trust, min(general.since, at))


def life_began(trust: TrustState, at: float, kept: Set[str]) -> TrustState:
    """Return the trust of a life of whose beginning nothing is known yet, after that of the one before.

    Media that are `kept` go on as they were.
    """
    special = {medium: of(trust, medium) for medium in kept}
    return TrustState(TrustSince("partial", at), special, left_behind(trust))


def opened(trust: TrustState, at: float, *, complete: bool) -> TrustState:
    """Return the trust of a life that is known from here on, after what was known of its beginning."""
    special = {medium: since for medium, since in trust.by_medium.items() if is_kept_once(medium)}
    return TrustState(TrustSince("complete" if complete else "partial", at), special, trust.passed)


def degraded(trust: TrustState, at: float, medium: str | None = None) -> None:
    """Something is missing: no medium, or not `medium`, can be complete; those already degraded stay so."""
    if medium is not None:
        trust.by_medium[medium] = _worse(of(trust, medium), at)
        return
    trust.general = _worse(trust.general, at)
    trust.by_medium = {medium: _worse(since, at) for medium, since in trust.by_medium.items()}


def cleared(trust: TrustState, media: Set[str], at: float, *, others: Set[str] | None = None) -> None:
    """These media are known to be empty, so from here on they are complete.

    With `others` so are all that nobody knows yet, and `others` are those that stay as they are.
    """
    if others is not None:
        stay = {medium: of(trust, medium) for medium in others}
        left_behind(trust)
        trust.by_medium = stay
        trust.general = _complete(trust.general, at)
    else:
        for medium in media:
            _pass(trust, medium)
            trust.by_medium[medium] = _complete(of(trust, medium), at)


def contradicted(head: SourceHead, medium: str, at: float) -> None:
    """What is known of a medium is wrong since event time `at`, and the source is remarked for it."""
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
