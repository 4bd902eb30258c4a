"""A Faust app around one role: partitions come and go, records are applied, state is saved."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any, Generic, TypeVar

import structlog
from aiokafka.errors import KafkaError
from faust.types import TP

from pipeline.applying.offered import offered
from pipeline.applying.resuming import go_on
from pipeline.applying.state import Cut
from pipeline.errors import CheckpointFailed, RecordsRemoved
from pipeline.kafka.checkpoints import load
from pipeline.kafka.committed import committed_before
from pipeline.kafka.identity import require_same
from pipeline.kafka.membership import group_name
from pipeline.worker.checkpoint.log import CheckpointLog
from pipeline.worker.checkpoint.rounds import CheckpointRounds
from pipeline.worker.checkpoint.schedule import Lag, Schedule
from pipeline.worker.consumer.app import faust_app
from pipeline.worker.consumer.transport import Transport, fetch_wait
from pipeline.worker.partition import OwnedPartition
from pipeline.worker.roles.role import Role
from pipeline.worker.telemetry import WorkerMetrics
from schemas.settings import Settings

FINAL_SECONDS = 12.0
"""Budget of the last checkpoint before partitions go to another worker."""
_POSITION_SECONDS = 2.0

_log = structlog.get_logger(__name__)
_Record = TypeVar("_Record")
_Cut = TypeVar("_Cut", bound=Cut)


class Agent(Generic[_Record, _Cut]):
    """Owns the partitions that the consumer group assigns to this worker, and saves their state."""

    def __init__(
        self,
        settings: Settings,
        role: Role[_Record, _Cut],
        rounds: CheckpointRounds,
        metrics: WorkerMetrics,
        *,
        topics: Mapping[str, str],
        fatal: Callable[[BaseException], None],
        joined: Callable[[str, str], None],
    ) -> None:
        """`topics`: ids by name of the topics, at least of those that the role needs.

        `fatal` ends the process: the state in memory may no longer match the log. `joined` gets group and
        member id at each assignment.
        """
        self.role = role
        self.owned: dict[int, OwnedPartition[_Record, _Cut]] = {}
        self.ready = False
        self._lag = Lag()
        self.group = group_name(settings.kafka, role.name)
        self._kafka = settings.kafka
        self._topics = {name: topics[name] for name in sorted(role.saved_topics & topics.keys())}
        self._rounds = rounds
        self._metrics = metrics
        self._fatal = fatal
        self._joined = joined
        self._handing_over = asyncio.Lock()
        self._loading: asyncio.Task[list[OwnedPartition[_Record, _Cut]]] | None = None
        self._stopping = False
        self._full = asyncio.Event()
        """Set when as much waits for a round as may."""
        self.app = self._faust_app(settings)

    async def checkpoint_every(
        self, seconds: float, after: float = 0.0, *, far_behind: Callable[[], bool]
    ) -> None:
        """Save all owned partitions as `Schedule` says, from `after` seconds on, and early if much waits.

        A failure is fatal. `far_behind` says whether any agent of this worker is far behind, since one reads
        what another commits.
        """
        schedule = Schedule(seconds, time.monotonic() + after)
        while True:
            full = await self._full_within(schedule.pause(time.monotonic()))
            self._lag.look(
                time.time(),
                newest=max((owned.newest for owned in self.owned.values()), default=0.0),
                reached=sum(owned.state.next_offset for owned in self.owned.values()),
                holding=self.holding,
            )
            if self.ready:
                wait = fetch_wait(schedule.every, far_behind=self.far_behind)
                self.app.consumer.hold_fetches(wait)
            if full:
                schedule.brought_forward()
            elif not schedule.due(far_behind=far_behind()):
                continue
            try:
                schedule.made(await self._rounds.save([*self.owned.values()]))
                self._full.clear()
                self._bound_unsaved()  # by what was applied beside the round
            except Exception as error:
                self._fatal(error)

    async def _full_within(self, seconds: float) -> bool:
        try:
            await asyncio.wait_for(self._full.wait(), seconds)
        except asyncio.TimeoutError:
            return False
        return True

    def _bound_unsaved(self) -> None:
        unsaved = sum(owned.unsaved for owned in self.owned.values())
        if unsaved > self.role.unsaved_bytes:
            self._full.set()
        if unsaved > 2 * self.role.unsaved_bytes:
            self._rounds.hold_to_the_end()

    async def stop(self, seconds: float) -> None:
        """Save what was applied and give the partitions up; raises CheckpointFailed after `seconds`."""
        self._stopping = True
        await self._release("shutdown", seconds)

    @property
    def far_behind(self) -> bool:
        """Whether it still applies records that have been in the log for long."""
        return self._lag.far_behind

    @property
    def rebalancing(self) -> bool:
        return bool(self.app.rebalancing)

    @property
    def holding(self) -> bool:
        """Whether applying waits for a checkpoint round."""
        return self._rounds.holding

    async def reached(self, number: int) -> int:
        """Return the offset before which nothing of an owned partition is left to apply.

        After the last record, this passes transaction markers, which are never delivered.
        """
        next_offset: int = self.owned[number].state.next_offset
        if self.role.reader.contiguous:
            return next_offset
        # Asked for first: what is fetched in between shows as not applied.
        asked = self.app.consumer.position(TP(self.role.topic, number))
        try:
            position = await asyncio.wait_for(asked, _POSITION_SECONDS)
        except (KafkaError, asyncio.TimeoutError):  # reassigned just now
            return next_offset
        if number not in self.owned:
            return next_offset
        next_offset = self.owned[number].state.next_offset
        if self._fetched(number) >= next_offset:
            return next_offset
        return max(next_offset, position or 0)

    def _fetched(self, number: int) -> int:
        """Return the offset of the newest fetched record of a partition, -1 if there is none."""
        offset: int = self.app.consumer.last_fetched.get(TP(self.role.topic, number), -1)
        return offset

    def _positions(self) -> Mapping[tuple[str, int], int]:
        return {(self.role.topic, number): owned.state.next_offset for number, owned in self.owned.items()}

    async def _apply(self, stream: Any) -> None:
        """Apply records and acknowledge none: the transactions of checkpoints move the group's offsets.

        A chunk, one message to Faust with many records, is applied in one go: nothing is cut or given up in
        between.
        """
        rounds, app = self._rounds, self.app
        try:
            async for event in stream.noack().events():
                if rounds.holding:
                    await rounds.released()
                chunk = event.message
                owned = self.owned.get(chunk.partition)
                # Of an assignment that is over: the owner of the partition now reads it again.
                if owned is None or chunk.generation_id != app.consumer_generation_id:
                    continue
                owned.offer_all(offered(chunk.records))
                self._bound_unsaved()
                # Chunks that wait come without other tasks getting their turn in between.
                await asyncio.sleep(0)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            self._fatal(error)

    async def _assigned(self, app: Any, **_: Any) -> None:
        """Load all assigned partitions; awaited before Faust seeks and resumes."""
        try:
            async with self._handing_over:
                if self._stopping:
                    return
                generation = app.consumer_generation_id
                numbers = sorted(
                    tp.partition for tp in app.consumer.assignment() if tp.topic == self.role.topic
                )
                _log.info("loading partitions", agent=self.role.name, partitions=numbers)
                loading = self._loading = asyncio.ensure_future(self._load(numbers))
                try:
                    await asyncio.wait({loading})
                finally:
                    self._loading = None
                    if loading.cancel():  # the next load must find all logs closed
                        await asyncio.wait({loading})
                if loading.cancelled():
                    _log.info("loading abandoned: partitions change hands", agent=self.role.name)
                    return
                loaded = loading.result()
                if app.consumer_generation_id != generation:
                    # Reassigned meanwhile: the call for that assignment follows and loads again.
                    await asyncio.gather(*(owned.log.close() for owned in loaded))
                    return
                self._joined(self.group, app.consumer.member_id)
                self.owned = {owned.partition: owned for owned in loaded}
                self.ready = True
                self._metrics.partitions.labels(self.role.name).set(len(loaded))
                self._metrics.rebalances.labels(self.role.name).inc()
                _log.info("partitions assigned", agent=self.role.name, partitions=numbers)
                self._rounds.sink.taken_over()
        except Exception as error:
            # Faust would log it and go on without a position.
            self._fatal(error)

    async def _revoked(self, app: Any, revoked: Iterable[TP], **_: Any) -> None:
        """Save and give up everything; awaited while the partitions are still ours."""
        try:
            await self._release("rebalance", FINAL_SECONDS)
        except Exception as error:
            self._fatal(error)

    async def _release(self, why: str, seconds: float) -> None:
        # Removed first, so that nothing is applied after the last cut.
        leaving, self.owned = [*self.owned.values()], {}
        for owned in leaving:
            owned.leaves = True
        if self._loading is not None:
            # Nothing loaded was applied yet, and loading may take longer than other workers wait.
            self._loading.cancel()
        self._metrics.partitions.labels(self.role.name).set(0)
        try:
            await asyncio.wait_for(self._hand_over(leaving), seconds)
        except asyncio.TimeoutError:
            if leaving or why == "rebalance":
                reason = f"not saved within {seconds:.0f} s of the {why}"
                number = leaving[0].partition if leaving else -1
                raise CheckpointFailed(self.role.topic, number, reason, fenced=False) from None
        if leaving:
            numbers = [owned.partition for owned in leaving]
            _log.info("partitions given up", agent=self.role.name, partitions=numbers, why=why)

    async def _hand_over(self, leaving: list[OwnedPartition[_Record, _Cut]]) -> None:
        async with self._handing_over:
            # A load that finished just now has added more.
            leaving += self.owned.values()
            self.owned = {}
            if leaving:
                await self._rounds.save(leaving)
                await asyncio.gather(*(owned.log.close() for owned in leaving))
                self._rounds.sink.given_up()
                for owned in leaving:
                    self._metrics.given_up(self.role.name, owned.partition)

    async def _load(self, numbers: Sequence[int]) -> list[OwnedPartition[_Record, _Cut]]:
        role = self.role
        logs = [
            CheckpointLog(self._kafka, group=self.group, topic=role.topic, partition=number)
            for number in numbers
        ]
        try:
            # All former owners are fenced before anything is read: what is read then is final.
            await asyncio.gather(*(log.open() for log in logs))
            by_number = dict(zip(numbers, logs, strict=True))
            committed = await committed_before(self._kafka, self.group, role.topic, numbers)
            for log in logs:
                log.continues(committed[log.partition])
            owned = []
            found = load(self._kafka, topic=role.topic, checkpoints=role.checkpoints, partitions=numbers)
            async with aclosing(found):
                async for number, loaded in found:
                    require_same(loaded.topics, self._topics)
                    # Takes seconds for a large state, in which the group must hear of this worker. It ends
                    # in its thread also when the load is abandoned.
                    state = await asyncio.to_thread(role.restored, number, loaded.latest)
                    # An offset beyond the end is of a deleted topic of the same name.
                    before = committed[number].offset if committed[number].offset <= loaded.end else 0
                    if not loaded.latest:
                        state.note_committed(before)
                    go_on(
                        state,
                        role.topic,
                        number,
                        fresh=not loaded.latest,
                        beginning=loaded.beginning,
                        end=loaded.end,
                        lost=self._lost,
                        markers=self._markers,
                    )
                    # In a topic of transactions the end may be a marker, which no state reaches.
                    heard = loaded.end if role.reader.contiguous else before
                    owned.append(
                        OwnedPartition(
                            role,
                            by_number[number],
                            state,
                            self._metrics,
                            heard=heard,
                            committed=before,
                            topics=self._topics,
                            fetched=partial(self._fetched, number),
                        )
                    )
            return owned
        except BaseException:
            await asyncio.gather(*(log.close() for log in logs))
            raise

    def _lost(self, records: int) -> None:
        self._metrics.lost.labels(self.role.name).inc(records)

    @property
    def _markers(self) -> int:
        """How many offsets after the last applied record certainly hold no record, but a marker."""
        return 0 if self.role.reader.contiguous else 1

    def require_not_removed(self, beginnings: Mapping[int, int]) -> None:
        """Raise RecordsRemoved when a partition begins after what was applied and what was fetched.

        A consumer then goes on at the beginning, and where nothing more comes no gap would show it.
        """
        for number, beginning in beginnings.items():
            owned = self.owned.get(number)
            if owned is None:
                continue
            next_offset = owned.state.next_offset
            known = max(next_offset, self._fetched(number) + 1)
            if beginning > known + self._markers:
                raise RecordsRemoved(self.role.topic, number, next_offset, beginning)

    def _faust_app(self, settings: Settings) -> Any:
        app = faust_app(settings, self.group)
        app.transport = Transport(
            app.conf.broker_consumer,
            app,
            positions=self._positions,
            committed=self.role.committed,
            chunk_bytes=self.role.chunk_bytes,
        )
        topic = app.topic(self.role.topic, value_type=bytes, value_serializer="raw", key_type=bytes)
        app.agent(topic, name=f"{self.role.name}-agent")(self._apply)
        # Signals keep weak references by default, which is enough: these methods live as long as the agent.
        app.on_rebalance_complete.connect(self._assigned)
        app.on_partitions_revoked.connect(self._revoked)
        return app
