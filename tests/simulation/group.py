"""A consumer group: members that come, go silent and are thrown out, and partitions divided anew."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from tests.simulation.loop import Process

Heard = Literal["fine", "rebalance", "unknown"]


@dataclass(slots=True)
class _Member:
    process: Process
    heard: float
    joining: asyncio.Future[Any] | None = None


class Group:
    """The coordinator's view of one group that reads one topic."""

    def __init__(
        self, later: Callable[[float, Callable[[], None]], None], now: Callable[[], float], partitions: int
    ) -> None:
        self.generation = 0
        self.members: dict[str, _Member] = {}
        self._later = later
        self._now = now
        self._partitions = partitions
        self._rebalancing = False
        self._numbers = 0

    def join(
        self, process: Process, member: str | None, session: float, rebalance: float
    ) -> asyncio.Future[Any]:
        """Return what will be (member, generation, partitions)."""
        if member is None or member not in self.members:
            self._numbers += 1
            member = f"member {self._numbers}"
            self.members[member] = _Member(process, self._now())
            self._watch(member, session)
        answer = process.create_future()
        self.members[member].joining = answer
        self.members[member].heard = self._now()
        self._begin(rebalance)
        self._finish_if_all()
        return answer

    def heartbeat(self, member: str, generation: int) -> Heard:
        """A member lives."""
        if member not in self.members:
            return "unknown"
        self.members[member].heard = self._now()
        return "rebalance" if self._rebalancing or generation != self.generation else "fine"

    def leave(self, member: str, rebalance: float) -> None:
        """A member goes."""
        if self.members.pop(member, None) is not None:
            self._begin(rebalance)
            self._finish_if_all()

    def _watch(self, member: str, session: float) -> None:
        found = self.members.get(member)
        if found is None:
            return
        silent = self._now() - found.heard
        # Who waits for the others to join is not silent.
        if silent >= session and (found.joining is None or not found.process.alive):
            self.leave(member, 30.0)
        else:
            self._later(max(session - silent, 0.5), lambda: self._watch(member, session))

    def _begin(self, rebalance: float) -> None:
        if self._rebalancing:
            return
        self._rebalancing = True
        generation = self.generation
        self._later(rebalance, lambda: self._give_up_on_others(generation))

    def _give_up_on_others(self, generation: int) -> None:
        if self._rebalancing and generation == self.generation:
            for name in [name for name, member in self.members.items() if member.joining is None]:
                del self.members[name]
            self._finish_if_all()

    def _finish_if_all(self) -> None:
        if not self._rebalancing or any(member.joining is None for member in self.members.values()):
            return
        self._rebalancing = False
        self.generation += 1
        names = sorted(self.members)
        for at, name in enumerate(names):
            member = self.members[name]
            answer, member.joining, member.heard = member.joining, None, self._now()
            mine = [number for number in range(self._partitions) if number % len(names) == at]
            if answer is not None and member.process.alive and not answer.done():
                answer.set_result((name, self.generation, mine))
