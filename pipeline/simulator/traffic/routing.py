"""Which replica gets a request, and which of them compute prompts for the others."""

from __future__ import annotations

import random
import zlib
from typing import Literal

Routing = Literal["round-robin", "sticky", "random"]

ROUTINGS: tuple[Routing, ...] = ("round-robin", "sticky", "random")


class Router:
    """Distributes requests over `targets` sources; `sticky` always sends an affinity key to the same one."""

    def __init__(self, routing: Routing, targets: int, seed: int = 0) -> None:
        if targets < 1:
            raise ValueError(f"targets must be at least 1, got {targets}")
        self._routing = routing
        self._targets = targets
        self._next = 0
        self._rng = random.Random(seed)

    def choose(self, affinity: str) -> int:
        """Return the number of the target of the next request; `affinity` names its conversation."""
        if self._routing == "sticky":
            return zlib.crc32(affinity.encode()) % self._targets
        if self._routing == "random":
            return self._rng.randrange(self._targets)
        chosen = self._next
        self._next = (chosen + 1) % self._targets
        return chosen


def role_of(number: int, prefilling: int) -> str | None:
    """Return the role of a replica for the configuration: the first `prefilling` compute prompts for the
    others. None where each does both."""
    return None if not prefilling else "prefill" if number < prefilling else "decode"


def check_roles(replicas: int, prefilling: int) -> None:
    """Raise ValueError if no replica is left to decode."""
    if prefilling >= replicas:
        raise ValueError(f"of {replicas} replicas {prefilling} prefill: some have to decode")
