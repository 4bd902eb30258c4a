"""Memory of a resident block in the agent's state, while blocks come and go."""

from __future__ import annotations

import subprocess
import sys

from figures import Figures

_CHILD = """
import os, random, sys
from pipeline.residency.partition import PartitionState
from pipeline.worker.warming import warm_up
from schemas.events import Batch, EventsRecord, Opened, Removed, Stored
from schemas.settings import Worker

def resident():
    return int(open('/proc/self/statm').read().split()[1]) * os.sysconf('SC_PAGE_SIZE')

REPLICAS, BLOCKS, CHURN = 20, 50_000, 3
rng = random.Random(1)
state = PartitionState(0, Worker(), shards=8)
offset = 0
def apply(replica, batches):
    global offset
    state.apply(offset, EventsRecord(replica, 'm', 'd', 0, 1, batches))
    offset += 1
warm_up()
before = resident()
for number in range(REPLICAS):
    name = f'replica-{number}'
    apply(name, [Batch(None, 1e9, 1e9, [Opened(0, True)])])
    live = []
    seq = 0
    for step in range(BLOCKS * CHURN // 500):
        fresh = rng.randbytes(4000)
        events = [Stored(fresh, 16, links=rng.randbytes(4000) if 'content' in sys.argv else b'')]
        live.append(fresh)
        if len(live) > BLOCKS // 500:
            events.insert(0, Removed(live.pop(0)))
        apply(name, [Batch(seq, 1e9 + seq / 100, 1e9 + seq / 100, events)])
        seq += 1
    state.cut(1e9)
total = sum(o.blocks for s in state.sources.values() for o in s.occupancy())
print((resident() - before) / total)
"""


def run(figures: Figures) -> None:
    """Measure in fresh processes: 20 replicas of 50,000 blocks, replaced twice over."""
    for name, arguments in (("", ()), (" with content hashes", ("content",))):
        child = [sys.executable, "-c", _CHILD, *arguments]
        result = subprocess.run(child, capture_output=True, text=True, check=True)
        figure = f"agent: resident memory per resident block{name}, after churn"
        figures.add(figure, float(result.stdout), "bytes")
