"""What there is once: time, the broker, the store, the engines."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from connectors.kafka.topics import catalogue, topic_name
from schemas.settings import Settings
from tests.simulation.broker import Broker
from tests.simulation.group import Group
from tests.simulation.loop import BEGINNING, World
from tests.simulation.store import Store

if TYPE_CHECKING:
    from tests.simulation.engine import Engine


class Simulation(World):
    """A world with the parts that live as long as it."""

    def __init__(self, seed: int, settings: Settings, *, partitions: int, shards: int) -> None:
        super().__init__(seed)
        self.seed = seed
        self.settings = settings
        sizes = {"events": partitions, "checkpoints_replica": partitions}
        sizes |= {"residency": shards, "checkpoints_fleet": shards, "figures": partitions}
        names = {key: topic_name(settings.kafka, key) for key in catalogue()}
        self.broker = Broker({name: sizes.get(key, 1) for key, name in names.items()}, self.wall)
        self.broker.later = lambda seconds, call: self.at(self.now + seconds, call)
        self.store = Store(random.Random(f"store {seed}"))
        self.engines: dict[str, Engine] = {}
        """By their addresses."""
        self._groups: dict[str, Group] = {}

    def group(self, name: str, topic: str) -> Group:
        """Return the consumer group of a name."""
        if name not in self._groups:
            self._groups[name] = Group(self.broker.later, lambda: self.now, self.broker.topics[topic])
        return self._groups[name]

    def wall(self) -> float:
        """Seconds since the epoch, by a clock that is right."""
        return BEGINNING + self.now
