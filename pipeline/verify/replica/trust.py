"""The trust of a source, medium by medium: now, and at its worst in the open window."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from schemas.events import is_kept_once
from schemas.trust import TRUST_ORDER, Trust


class Since(NamedTuple):
    """A trust and the event time of its beginning."""

    trust: Trust
    at: float


class _Left(NamedTuple):
    """Trust that ended in the open window; `media` None: of all media."""

    media: frozenset[str] | None
    general: Since
    special: dict[str, Since]


def worst(several: Iterable[Since]) -> Since:
    """Return the worst; of equally bad ones the one that began first."""
    return max(several, key=lambda since: (TRUST_ORDER.index(since.trust), -since.at))


class SourceTrust:
    """Trust of a source: `general` for every medium that has none of its own."""

    def __init__(self) -> None:
        self.general = Since("partial", 0.0)
        self.special: dict[str, Since] = {}
        self._left: list[_Left] = []

    def of(self, medium: str) -> Since:
        """Return the trust of a medium now."""
        return _of_medium(medium, self.special.get(medium, self.general))

    def of_all(self, media: Iterable[str]) -> Since:
        """Return the worst trust of these media; without any, the general one."""
        return worst([self.of(medium) for medium in media] or [self.general])

    def had(self, medium: str) -> Since:
        """Return the worst trust that a medium has now or had in the open window."""
        left = [
            _of_medium(medium, one.special.get(medium, one.general))
            for one in self._left
            if one.media is None or medium in one.media
        ]
        return worst([self.of(medium), *left])

    def had_all(self, media: Iterable[str]) -> Since:
        """Return the worst that any of these media had; without any, that of a medium nobody named."""
        return worst([self.had(medium) for medium in media] or [self.had("")])

    def life_began(self, at: float, kept: Iterable[str] | None) -> None:
        """Begin a session whose beginning is unknown; media in `kept` keep the trust they have.

        `kept` None: there was no session before.
        """
        special: dict[str, Since] = {}
        if kept is not None:
            special = {medium: self.of(medium) for medium in kept}
            self._leave(None)
        self.general, self.special = Since("partial", at), special

    def opened(self, at: float, *, complete: bool) -> None:
        """Note that the connector knows this session from here on."""
        self.general = Since("complete" if complete else "partial", at)
        self.special = {medium: self.special[medium] for medium in self.special if is_kept_once(medium)}

    def first_batch(self, at: float) -> None:
        """Date the trust back to the first batch, if that is before the notice that opened the session."""
        self.general = Since(self.general.trust, min(self.general.at, at))

    def degraded(self, at: float, medium: str | None = None) -> None:
        """Degrade every medium, or one, from `at` on, unless it is degraded already: something is missing."""
        if medium is not None:
            self.special[medium] = _degraded(self.of(medium), at)
            return
        self.general = _degraded(self.general, at)
        self.special = {medium: _degraded(since, at) for medium, since in self.special.items()}

    def cleared(self, medium: str | None, at: float, but: Iterable[str] = ()) -> None:
        """Make a medium (None: all except `but`) complete from `at` on, unless it is already: it is empty."""
        self._leave(medium)
        if medium is None:
            unchanged = {each: self.of(each) for each in but}
            self.general, self.special = _complete(self.general, at), unchanged
        else:
            self.special[medium] = _complete(self.of(medium), at)

    def window_began(self) -> None:
        """Forget what ended in the window before."""
        self._left.clear()

    def _leave(self, medium: str | None) -> None:
        media = None if medium is None else frozenset({medium})
        self._left.append(_Left(media, self.general, dict(self.special)))


def _of_medium(medium: str, since: Since) -> Since:
    """Return a medium's trust: at best `partial` if it outlives engines, as it may hold unknown blocks."""
    return since._replace(trust="partial") if since.trust == "complete" and is_kept_once(medium) else since


def _degraded(since: Since, at: float) -> Since:
    return since if since.trust == "degraded" else Since("degraded", at)


def _complete(since: Since, at: float) -> Since:
    return since if since.trust == "complete" else Since("complete", at)
