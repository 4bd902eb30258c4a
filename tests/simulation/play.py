"""Plays a schedule: processes that are started again, actions at their time, and then rest."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence

import msgspec

from connectors import connector
from connectors.kafka.topics import topic_name
from connectors.process.stopping import Stop
from schemas.discovery_settings import Replica
from schemas.fleet_checkpoints import HEAD_KEY, FleetHead
from schemas.settings import ClickHouse, Connector, Kafka, Settings, Worker
from tests.simulation import worker
from tests.simulation.engine import Engine
from tests.simulation.index import Followed
from tests.simulation.loop import Process
from tests.simulation.schedule import Action, Schedule
from tests.simulation.simulation import Simulation
from tests.simulation.store import Trouble
from tests.simulation.supervised import LONGEST_AWAY, LONGEST_STOP, Main, Supervised

HEALED_SECONDS = 1.0
SETTLING_SECONDS = 6.0
"""After the last action: a connector asks for the end of an idle stream after three."""
LOOKING_SECONDS = 10.0
"""In which a connector looks twice for others that read its sources."""
COMPACTED_SECONDS = 6.0
"""Newer records are not compacted."""
PATIENCE_SECONDS = 90.0
"""In which workers have to commit everything that is in the log."""


def _connects(number: int, connectors: int) -> Main:
    async def connect(settings: Settings, stop: Stop) -> None:
        shard = msgspec.structs.replace(settings.connector, shard=f"{number}/{connectors}")
        await connector.run(msgspec.structs.replace(settings, connector=shard), stop=stop)

    return connect


class Play:
    """One run of a schedule."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        settings = Settings(
            kafka=Kafka(bootstrap_servers="simulated:9092"),
            clickhouse=ClickHouse(url="http://simulated:8123"),
            connector=Connector(
                linger_seconds=schedule.linger_seconds, replay_timeout_seconds=1.0, tail_seconds=3.0
            ),
            worker=Worker(
                checkpoint_seconds=schedule.checkpoint_seconds, idle_carry_seconds=schedule.carry_seconds
            ),
            replicas=[
                Replica(
                    id=f"r{number}",
                    model="m",
                    endpoint=f"tcp://e{number}:1",
                    replay_endpoint=f"tcp://e{number}:1",
                    role="decode" if number >= schedule.engines - schedule.receivers else "",
                )
                for number in range(schedule.engines)
            ],
        )
        self.simulation = simulation = Simulation(
            schedule.seed, settings, partitions=schedule.partitions, shards=schedule.shards
        )
        for replica in settings.replicas:
            simulation.engines[replica.endpoint] = Engine(
                simulation, replica.id, capacity=schedule.capacity, keeps=schedule.keeps
            )
        self.engines = [*simulation.engines.values()]
        self.connectors = [
            Supervised(simulation, f"connector {number}", _connects(number, schedule.connectors))
            for number in range(schedule.connectors)
        ]
        self.followed = Followed()
        self.index = Supervised(simulation, "index", self.followed.follow)
        self._troubles = 0
        """Of the store, so far."""
        self.overlapping: list[Supervised] = []
        """Connectors that read the same as others, for a while."""
        self.workers = [
            Supervised(simulation, f"worker {number}", worker.work) for number in range(schedule.workers)
        ]

    @property
    def all(self) -> list[Supervised]:
        """All processes."""
        indexes = [self.index] if self.schedule.indexes else []
        return [*self.connectors, *self.overlapping, *self.workers, *indexes]

    def run(self) -> str | None:
        """Let it happen, until everything is at rest; return what did not come to rest, if anything."""
        simulation = self.simulation
        for process in self.all:
            process.start()
        for action in self.schedule.actions:
            simulation.run(action.at)
            self._do(action)
        simulation.run(self.schedule.seconds)
        return self._rest()

    def _rest(self) -> str | None:
        """Let all faults end, and what they left be mended."""
        simulation = self.simulation
        simulation.slow_until, simulation.store.trouble = 0.0, ""
        for engine in self.engines:
            engine.deaf_until, engine.drops, engine.holes = 0.0, 0, 0
        for supervised in self.all:
            supervised.heal()
        # Who is away for long comes back, before anything is over for it.
        back = simulation.now + LONGEST_STOP + LONGEST_AWAY
        simulation.run(back, unless=lambda: not any(each.away for each in self.all))
        if self.overlapping:
            # Those that stay find out what the others did when they look twice.
            self._end(self.overlapping)
            simulation.run(simulation.now + LOOKING_SECONDS)
        simulation.run(simulation.now + HEALED_SECONDS)
        rng = random.Random(f"rest {self.schedule.seed}")
        for engine in self.engines:
            engine.up = True
            # Some say nothing more, so that no next number shows what is missing.
            if not engine.published or rng.random() < 0.5:
                engine.publish([])
        simulation.run(simulation.now + SETTLING_SECONDS)
        self._end(self.connectors)
        left = self._settled()
        # Idle sources are carried forward to the present.
        simulation.run(simulation.now + 1.0 + self.schedule.checkpoint_seconds)
        left = left or self._settled()
        return f"not committed: {left}" if left else None

    def _end(self, processes: Sequence[Supervised]) -> None:
        simulation = self.simulation
        for process in processes:
            process.end()
        ended = simulation.now + LONGEST_STOP
        simulation.run(ended, unless=lambda: not any(process.runs for process in processes))

    def _settled(self) -> list[str]:
        """Wait until what is in the log now is committed; return where that takes too long.

        Partitions go on to say how far they are read, so there is always something behind it.
        """
        simulation, kafka = self.simulation, self.simulation.settings.kafka
        ends = []
        for agent, key in (("replica", "events"), ("fleet", "residency")):
            for (topic, number), log in simulation.broker.log.items():
                if f".{key}." in topic:
                    # What was aborted is for nobody.
                    read = [entry.offset for entry in log.entries if not entry.marker and not entry.aborted]
                    ends.append((f"{kafka.group}.{agent}", (topic, number), max(read, default=-1) + 1))

        def left() -> Iterator[str]:
            for group, (topic, number), end in ends:
                committed, _ = simulation.broker.committed.get((group, (topic, number)), (0, ""))
                if committed < end:
                    yield f"{topic}/{number}: {committed} of {end}"

        simulation.run(simulation.now + PATIENCE_SECONDS, unless=lambda: not any(left()))
        return [*left()]

    # Actions

    def _do(self, action: Action) -> None:
        rng = random.Random(action.number)
        getattr(self, f"_{action.kind}")(action.whom, rng)

    def _engine(self, whom: int) -> Engine:
        return self.engines[whom % len(self.engines)]

    def _process(self, whom: int) -> Supervised:
        return self.all[whom % len(self.all)]

    def _serve(self, whom: int, rng: random.Random) -> None:
        if (engine := self._engine(whom)).up:
            receives = engine in self.engines[self.schedule.engines - self.schedule.receivers :]
            if receives and rng.random() < 0.7 and self.engines[0].up:
                self._pull(self.engines[0], engine, rng)
            else:
                engine.serve(rng, self.schedule.prompts)

    def _pull(self, giver: Engine, receiver: Engine, rng: random.Random) -> None:
        """One engine computes a prompt, which the other has soon afterwards, and announces as its own.

        All that was missing is one event, equal in every field to that of computed blocks. Of real engines 40
        to 90 ms were measured between the two, and up to 1.7 s.
        """
        path, life = giver.serve(rng, self.schedule.prompts), receiver.life
        takes = rng.random() * (1.7 if rng.random() < 0.2 else 0.09)

        def arrives() -> None:
            if receiver.up and receiver.life == life:
                receiver.store(path)

        self.simulation.at(self.simulation.now + takes, arrives)

    def _clear(self, whom: int, rng: random.Random) -> None:
        if (engine := self._engine(whom)).up:
            engine.clear()

    def _lie(self, whom: int, rng: random.Random) -> None:
        if (engine := self._engine(whom)).up:
            engine.lie(rng)

    def _bite(self, whom: int, rng: random.Random) -> None:
        if (engine := self._engine(whom)).up:
            engine.bite(rng)

    def _again(self, whom: int, rng: random.Random) -> None:
        """It begins anew at once, and has soon published as much as before, and as it keeps."""
        engine = self._engine(whom)
        published = len(engine.published)
        engine.restart(0.0)
        engine.up = True
        for _ in range(published + rng.choice([0, 1, *[min(self.schedule.keeps, 12)] * 3])):
            engine.serve(rng, self.schedule.prompts)

    def _restart(self, whom: int, rng: random.Random) -> None:
        self._engine(whom).restart(rng.random() * 4.0, rng.choice([0.0, 0.0, -30.0, 3.0]))

    def _down(self, whom: int, rng: random.Random) -> None:
        """It is away for so long that connectors report its silence several times."""
        self._engine(whom).restart(6.0 + rng.random() * 9.0)

    def _drop(self, whom: int, rng: random.Random) -> None:
        self._engine(whom).drops += rng.randrange(1, 5)

    def _deaf(self, whom: int, rng: random.Random) -> None:
        self._engine(whom).deaf_until = self.simulation.now + rng.random() * 10.0

    def _holes(self, whom: int, rng: random.Random) -> None:
        self._engine(whom).holes += rng.randrange(1, 3)

    def _at_an_await(self, whom: int, rng: random.Random, then: Callable[[Process], None]) -> None:
        process = self._process(whom).process
        if process is not None and process.alive:
            process.after_steps(int(rng.expovariate(1 / 60)), lambda: then(process))

    def _kill(self, whom: int, rng: random.Random) -> None:
        self._at_an_await(whom, rng, lambda process: process.kill())

    def _at_next(self, what: str, number: int, whom: int, rng: random.Random) -> None:
        """Kill it, or let it sleep for long, as soon as so many more of what it sends have arrived."""
        process = self._process(whom).process
        if process is not None and process.alive:
            kill = rng.random() < 0.7
            process.at_next(what, number, process.kill if kill else lambda: process.freeze(9.0))

    def _inserted(self, whom: int, rng: random.Random) -> None:
        self._at_next("insert", rng.randrange(1, 6), whom, rng)

    def _committed(self, whom: int, rng: random.Random) -> None:
        self._at_next("commit", rng.randrange(1, 3), whom, rng)

    def _appended(self, whom: int, rng: random.Random) -> None:
        self._at_next("append", rng.randrange(1, 4), whom, rng)

    def _freeze(self, whom: int, rng: random.Random) -> None:
        seconds = rng.choice([1.0, 5.0, 9.0, 25.0])
        self._at_an_await(whom, rng, lambda process: process.freeze(seconds))

    def _clock(self, whom: int, rng: random.Random) -> None:
        supervised, seconds = self._process(whom), rng.choice([-20.0, -3.0, 3.0, 4.0])
        self._at_an_await(whom, rng, lambda process: supervised.step_clock(seconds))

    def _ahead(self, whom: int, rng: random.Random) -> None:
        """The clock of a connector is ahead for a moment."""
        connector = self.connectors[whom % len(self.connectors)]
        connector.step_clock(12.0)
        back = self.simulation.now + 0.3 + rng.random()
        self.simulation.at(back, lambda: connector.step_clock(-12.0))

    def _stop(self, whom: int, rng: random.Random) -> None:
        self._process(whom).ask_to_stop()

    def _slow(self, whom: int, rng: random.Random) -> None:
        self.simulation.slow_until = self.simulation.now + rng.random() * 6.0

    def _store(self, whom: int, rng: random.Random) -> None:
        store = self.simulation.store
        troubles: list[Trouble] = ["refuses", "answers not"]
        store.trouble = rng.choice(troubles)
        self._troubles += 1
        this = self._troubles

        def ends() -> None:
            if this == self._troubles:
                store.trouble = ""

        self.simulation.broker.later(rng.random() * 6.0, ends)

    def _retain(self, whom: int, rng: random.Random) -> None:
        broker = self.simulation.broker
        if self.overlapping:
            return  # a recount from where the log begins now might begin with the session that was over
        topic = rng.choice([name for name in broker.topics if ".events." in name or ".residency." in name])
        share = rng.choice([1.0, rng.random()])
        for number in range(broker.topics[topic]):
            log = broker.log[topic, number]
            # It keeps what came after a base of the fleet agent, as that is minutes old at most.
            end = log.end if ".events." in topic else self._in_base(number)
            broker.retain((topic, number), log.begin + int(max(0, end - log.begin) * share))

    def _in_base(self, shard: int) -> int:
        broker, kafka = self.simulation.broker, self.simulation.settings.kafka
        entries = broker.log[topic_name(kafka, "checkpoints_fleet"), shard].entries
        heads = [entry.value for entry in entries if entry.key == HEAD_KEY and not entry.aborted]
        return msgspec.msgpack.decode(heads[-1] or b"", type=FleetHead).next_offset if heads else 0

    def _compact(self, whom: int, rng: random.Random) -> None:
        broker = self.simulation.broker
        topic = rng.choice(
            [name for name in broker.topics if ".checkpoints." in name or ".positions." in name]
        )
        for number in range(broker.topics[topic]):
            # Segments are compacted when they are over, long after whoever writes positions has seen others'.
            log, old = broker.log[topic, number], (self.simulation.wall() - COMPACTED_SECONDS) * 1000
            end = next((entry.offset for entry in log.entries if entry.timestamp > old), log.end)
            broker.compact((topic, number), log.begin + int((end - log.begin) * rng.random()))

    def _lose(self, whom: int, rng: random.Random) -> None:
        """Checkpoints of the replica agent are gone, and its processes find out when they begin again."""
        broker = self.simulation.broker
        topic = topic_name(self.simulation.settings.kafka, "checkpoints_replica")
        if any(log.begin for (name, _), log in broker.log.items() if ".events." in name):
            return  # then nobody could compute them again
        for number in range(broker.topics[topic]):
            broker.retain((topic, number), broker.log[topic, number].end)
        for supervised in self.workers:
            if supervised.process is not None:
                supervised.process.kill()

    def _overlap(self, whom: int, rng: random.Random) -> None:
        """A second connector reads the same engines for a while, as in a careless update."""
        number = whom % len(self.connectors)
        name = f"connector {number} again"
        another = Supervised(self.simulation, name, _connects(number, self.schedule.connectors))
        another.start()
        self.overlapping.append(another)
        self.simulation.broker.later(rng.random() * 12.0, another.end)

    def _join(self, whom: int, rng: random.Random) -> None:
        another = Supervised(self.simulation, f"worker {len(self.workers)}", worker.work)
        self.workers.append(another)
        another.start()

    def _leave(self, whom: int, rng: random.Random) -> None:
        if len(self.workers) > 1:
            self.workers.pop(whom % len(self.workers)).end()
