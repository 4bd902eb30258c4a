"""Inside which hashes compare: a model and a hash domain, each with a number."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt


class Scope(NamedTuple):
    """What a source says of itself when a life of its engine begins."""

    model: str
    hash_domain: str
    tenant: str


class Scopes:
    """Numbers of the scopes that sources are in."""

    def __init__(self) -> None:
        self._numbers: dict[Scope, int] = {}
        self._sources: dict[int, int] = {}
        """How many are in each."""
        self._free: list[int] = []

    def enter(self, scope: Scope) -> int:
        """Return the number of a scope, which one source more is in."""
        number = self._numbers.get(scope)
        if number is None:
            number = self._numbers[scope] = self._free.pop() if self._free else len(self._sources)
        self._sources[number] = self._sources.get(number, 0) + 1
        return number

    def leave(self, scope: Scope) -> None:
        """One source less is in a scope."""
        number = self._numbers[scope]
        self._sources[number] -= 1
        if not self._sources[number]:
            del self._numbers[scope]
            self._free.append(number)

    def number(self, scope: Scope) -> int:
        """Return the number of a scope that sources are in."""
        return self._numbers[scope]

    def asked_for(
        self, model: str, *, hash_domain: str | None, tenant: str | None
    ) -> npt.NDArray[np.bool_] | None:
        """Return of each number whether it is asked for; None if no source is in any of these."""
        found = [
            number
            for scope, number in self._numbers.items()
            if scope.model == model
            and hash_domain in (None, scope.hash_domain)
            and tenant in (None, scope.tenant)
        ]
        if not found:
            return None
        asked = np.zeros(len(self._sources), np.bool_)
        asked[found] = True
        return asked
