"""A Faust app without Faust: a member of a group, which fetches what it was assigned, in chunks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from aiokafka.errors import OffsetOutOfRangeError
from faust.types import TP

from pipeline.worker.agent import Agent
from pipeline.worker.consumer.app import HEARTBEAT_SECONDS, REBALANCE_SECONDS, SESSION_SECONDS
from pipeline.worker.consumer.fetched import Chunk, in_turns
from pipeline.worker.roles.role import Role
from schemas.settings import Settings
from tests.simulation.clients import message
from tests.simulation.group import Group
from tests.simulation.loop import here

if TYPE_CHECKING:
    from tests.simulation.simulation import Simulation

_BUFFERED = 4
_MOST_RECORDS = 64


class SimulatedAgent(Agent[Any, Any]):
    """The agent as it is, in an app of lists."""

    def _faust_app(self, settings: Settings) -> Any:
        return App(
            self.group,
            self.role,
            positions=self._positions,
            assigned=self._assigned,
            revoked=self._revoked,
            apply=self._apply,
        )


class _Consumer:
    """What the agent asks of Faust's consumer."""

    def __init__(self) -> None:
        self.member_id = ""
        self.mine: set[TP] = set()
        self.last_fetched: dict[TP, int] = {}
        self.offsets: dict[TP, int] = {}

    def assignment(self) -> set[TP]:
        return self.mine

    def hold_fetches(self, seconds: float) -> None: ...

    async def position(self, place: TP) -> int | None:
        await asyncio.sleep(0)
        return self.offsets.get(place)


class App:
    """Joins, fetches and leaves; what Faust calls signals are awaited as Faust does."""

    def __init__(
        self,
        group: str,
        role: Role[Any, Any],
        *,
        positions: Callable[[], Mapping[tuple[str, int], int]],
        assigned: Callable[..., Awaitable[None]],
        revoked: Callable[..., Awaitable[None]],
        apply: Callable[[Any], Awaitable[None]],
    ) -> None:
        self._process = here()
        self._simulation = simulation = cast("Simulation", self._process.world)
        self._role = role
        self._positions, self._tell_assigned, self._tell_revoked = positions, assigned, revoked
        self._apply = apply
        self._chunks: asyncio.Queue[Chunk] = asyncio.Queue(_BUFFERED)
        self._group: Group = simulation.group(group, role.topic)
        self._member: str | None = None
        self._flows = False
        self._stirred = asyncio.Event()
        self._tasks: list[asyncio.Task[Any]] = []
        self.consumer = _Consumer()
        self.consumer_generation_id = -1
        self.rebalancing = True
        self.crashed = False

    async def start(self) -> None:
        """Run until stopped."""
        self._tasks = [
            asyncio.ensure_future(work) for work in (self._belong(), self._fetch(), self._apply(self))
        ]

    async def stop(self) -> None:
        """Leave the group."""
        for task in self._tasks:
            task.cancel()
        if (member := self._member) is not None:
            await self._process.request(lambda: self._group.leave(member, REBALANCE_SECONDS))

    # What the agent takes for a stream

    def noack(self) -> App:
        return self

    async def events(self) -> AsyncIterator[Any]:
        while True:
            yield SimpleNamespace(message=await self._chunks.get())

    # The group

    async def _belong(self) -> None:
        while True:
            answer = await self._process.request(
                lambda: self._group.join(self._process, self._member, SESSION_SECONDS, REBALANCE_SECONDS)
            )
            self._member, self.consumer_generation_id, numbers = await answer
            consumer = self.consumer
            consumer.member_id = self._member or ""
            consumer.mine = {TP(self._role.topic, number) for number in numbers}
            arriving = asyncio.ensure_future(self._arrive())
            await self._until_divided_anew()
            self.rebalancing, self._flows = True, False
            await self._tell_revoked(self, consumer.mine)
            await asyncio.wait([arriving])

    async def _arrive(self) -> None:
        generation = self.consumer_generation_id
        await self._tell_assigned(self)
        if generation == self.consumer_generation_id:
            positions = self._positions()
            self.consumer.offsets = {
                place: positions[place.topic, place.partition]
                for place in self.consumer.mine
                if (place.topic, place.partition) in positions
            }
            self.consumer.last_fetched.clear()
            self.rebalancing, self._flows = False, True
            self._stirred.set()

    async def _until_divided_anew(self) -> None:
        member, generation = self._member or "", self.consumer_generation_id
        while True:
            await asyncio.sleep(HEARTBEAT_SECONDS)
            heard = await self._process.request(lambda: self._group.heartbeat(member, generation))
            if heard != "fine":
                return

    # Records

    async def _fetch(self) -> None:
        while True:
            generation = self.consumer_generation_id
            some = False
            if self._flows:
                for place in sorted(self.consumer.offsets):
                    some |= await self._fetch_of(place, generation)
            if not some:
                await self._more()

    async def _more(self) -> None:
        """Wait for more records, or for other partitions."""
        self._stirred.clear()
        self._simulation.broker.waiting[self._role.topic].append(self._stirred.set)
        await self._stirred.wait()

    async def _fetch_of(self, place: TP, generation: int) -> bool:
        consumer, broker = self.consumer, self._simulation.broker
        offset = consumer.offsets.get(place)
        if offset is None:
            return False
        at = (place.topic, place.partition)
        try:
            entries, next_offset = await self._process.request(
                lambda: broker.fetch(at, offset, committed=self._role.committed, most=_MOST_RECORDS)
            )
        except OffsetOutOfRangeError:
            entries, next_offset = [], broker.log[at].begin
        if not self._flows or generation != self.consumer_generation_id:
            return False
        if consumer.offsets.get(place) == offset:
            consumer.offsets[place] = next_offset
        if entries:
            records = [message(at, entry) for entry in entries]
            consumer.last_fetched[place] = records[-1].offset
            for _, portion in in_turns({place: records}, self._role.chunk_bytes):
                await self._chunks.put(Chunk(place, portion, generation))
        return bool(entries)
