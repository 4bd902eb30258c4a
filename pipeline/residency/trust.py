"""How complete the knowledge of a source is, per medium, and since when."""

from __future__ import annotations

from typing import NamedTuple

from schemas.trust import TRUST_ORDER, Trust

ALL_OTHERS = ""
"""Stands for the media that are not named."""


class Since(NamedTuple):
    """A trust and the event time at which it began."""

    trust: Trust
    at: float


class SourceTrust:
    """Trust of every medium of one source incarnation; media not named share one value."""

    def __init__(self, initial: Since, passed: dict[str, Since] | None = None) -> None:
        """`passed` is that of the life before, if it ended in the open window."""
        self.general = initial
        self.by_medium: dict[str, Since] = {}
        self.passed = passed or {}
        """The worst trust that was left behind in the open window, by medium; ALL_OTHERS for the rest."""

    def of(self, medium: str) -> Since:
        """Return the trust of one medium."""
        return self.by_medium.get(medium, self.general)

    def worst(self, media: set[str]) -> Since:
        """Return the worst trust among the given media, since the first of them has it; without any, the
        general one."""
        return max((self.of(medium) for medium in media), key=_badness, default=self.general)

    def in_window(self, medium: str) -> Since:
        """Return the worst trust that one medium had in the open window."""
        return max(self.of(medium), self._passed(medium) or self.of(medium), key=_badness)

    def worst_in_window(self, media: set[str]) -> Since:
        """Return the worst trust that any of the given media had in the open window; likewise without any."""
        return max((self.in_window(medium) for medium in media or {ALL_OTHERS}), key=_badness)

    def left_behind(self) -> dict[str, Since]:
        """Count the present trust of every medium as left behind in the open window; return all that was."""
        for medium in {*self.by_medium, *self.passed} - {ALL_OTHERS}:
            self._pass(medium)
        self._pass(ALL_OTHERS)  # last, because it stands in for media that left nothing before
        return self.passed

    def first_batch(self, at: float) -> None:
        """What is known of this life is known from its first batch on, also when that came by replay."""
        self.general = self.general._replace(at=min(self.general.at, at))

    def degraded(self, at: float) -> None:
        """Something is missing: no medium can be complete, those already degraded stay so."""
        self.general = _worse(self.general, at)
        self.by_medium = {medium: _worse(since, at) for medium, since in self.by_medium.items()}

    def cleared(self, media: set[str] | None, at: float) -> None:
        """These media (None: all) are known to be empty, so from here on they are complete."""
        if media is None:
            self.left_behind()
            self.by_medium.clear()
            self.general = _complete(self.general, at)
        else:
            for medium in media:
                self._pass(medium)
                self.by_medium[medium] = _complete(self.of(medium), at)

    def _pass(self, medium: str) -> None:
        self.passed[medium] = max(self.of(medium), self._passed(medium) or self.of(medium), key=_badness)

    def _passed(self, medium: str) -> Since | None:
        return self.passed.get(medium, self.passed.get(ALL_OTHERS))


def _badness(since: Since) -> tuple[int, float]:
    return TRUST_ORDER.index(since.trust), -since.at


def _worse(since: Since, at: float) -> Since:
    return since if since.trust == "degraded" else Since("degraded", at)


def _complete(since: Since, at: float) -> Since:
    return since if since.trust == "complete" else Since("complete", at)
