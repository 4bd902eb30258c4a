"""More processes than this machine has cores for: how many replicas they carry, by replicas' names alone.

A worker gets equally many partitions, give or take one, and a connector its shard. Both follow from hashes of
names, so some get more replicas than others: the one that has most decides.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from figures import Figures

from connectors.discovery.shards import Shard
from connectors.kafka.topics import partition_of
from fleet_load.replicas import PARTITIONS

PROCESSES = (1, 2, 4, 8, 16)
PARTITION_COUNTS = (PARTITIONS, 4 * PARTITIONS)


def names() -> Iterator[str]:
    """Yield names as a cluster gives them; numbered ones would meet in no partition more than in others."""
    rng = random.Random(7)
    while True:
        yield f"replica-{rng.getrandbits(40):010x}"


def carried(each: int, keeper_of: Callable[[str], int], replicas: Iterable[str]) -> int:
    """Return how many replicas come until a process, which carries `each`, would have one more than that."""
    kept: Counter[int] = Counter()
    for name in replicas:
        keeper = keeper_of(name)
        if kept[keeper] == each:
            break
        kept[keeper] += 1
    return kept.total()


def worker_of(partitions: int, workers: int) -> Callable[[str], int]:
    """Workers beyond the number of partitions have nothing to do."""
    return lambda name: partition_of(name, partitions) % workers


def connector_of(connectors: int) -> Callable[[str], int]:
    shards = [Shard(number, connectors) for number in range(connectors)]
    return lambda name: next(shard.number for shard in shards if shard.owns(name))


def run(figures: Figures, *, worker: int, connector: int) -> None:
    """Say what so many processes carry, from what one of them does on a core of its own."""
    for partitions in PARTITION_COUNTS:
        for processes in PROCESSES:
            replicas = carried(worker, worker_of(partitions, processes), names())
            figures.add(f"scale-out, {partitions} partitions, workers {processes}", replicas, "replicas")
    for processes in PROCESSES:
        replicas = carried(connector, connector_of(processes), names())
        figures.add(f"scale-out, connectors {processes}", replicas, "replicas")
