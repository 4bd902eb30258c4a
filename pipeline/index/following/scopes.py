"""Scopes inside which hashes compare: model, hash domain and tenant, with a number for each combination."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt


class Scope(NamedTuple):
    """What a source reports about itself when an engine session begins."""

    model: str
    hash_domain: str
    tenant: str


class Scopes:
    """Numbers of the scopes that sources are in."""

    def __init__(self) -> None:
        self._numbers: dict[Scope, int] = {}
        self._sources: dict[int, int] = {}
        """How many sources are in each, by its number."""
        self._free: list[int] = []

    def enter(self, scope: Scope) -> int:
        """Count one more source in a scope, and return its number."""
        number = self._numbers.get(scope)
        if number is None:
            number = self._numbers[scope] = self._free.pop() if self._free else len(self._sources)
        self._sources[number] = self._sources.get(number, 0) + 1
        return number

    def leave(self, scope: Scope) -> None:
        """Count one source less in a scope; the last one frees its number."""
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
        """Return a mask over scope numbers, set for those asked for; None if no source is in any of them."""
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
