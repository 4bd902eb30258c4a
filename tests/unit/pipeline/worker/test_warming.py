"""After warming up, nothing is compiled any more, whatever comes."""

from __future__ import annotations

import subprocess
import sys

_CHILD = """
import gzip, sys
from pathlib import Path
import msgspec
import numpy as np
from connectors.sources import Source
from connectors.order.stream import SourceStream
from pipeline.worker.warming import warm_up
warm_up()
import numba
from numba.core.dispatcher import Dispatcher
from pipeline.fleet.kernel.refills import make_room, no_refills
from pipeline.fleet.state import FleetState
from pipeline.residency.partition import PartitionState
from schemas.residency import ResidencyRecord
from schemas.settings import Connector, Fleet, Worker

def compiled():
    return {
        f'{module.__name__}.{name}': [str(one) for one in function.signatures]
        for module in [*sys.modules.values()] if module.__name__.startswith('pipeline.')
        for name, function in vars(module).items() if isinstance(function, Dispatcher)
    }

warm = compiled()
replica, fleet = PartitionState(0, Worker(), shards=2), FleetState(0, Fleet(), carry_seconds=600.0)
latest, offset, changes = {}, 0, 0
for path in sorted(Path('tests/captures').glob('*.frames.msgpack.gz')):
    name = path.name.removesuffix('.frames.msgpack.gz')
    stream = SourceStream(Source(name, 0, 'm', 't', 'd', 'tcp://127.0.0.1:1'), Connector(), lambda: 1.8e9)
    records = []
    for _, seq, payload in msgspec.msgpack.decode(gzip.decompress(path.read_bytes())):
        records += stream.feed((b'', seq, payload), 1.8e9)
    for record in records + stream.flush():
        replica.apply(offset, record)
        offset += 1
        if offset % 20 == 0:
            replica.leaves()
            cut = replica.cut(1.8e9)
            latest.update(cut.checkpoints)
            for shard, _, value in cut.residency:
                if shard == 0:
                    fleet.apply(changes, msgspec.msgpack.decode(value, type=ResidencyRecord))
                    changes += 1
            fleet.cut(1.8e9)
            replica = PartitionState.restore(0, Worker(), shards=2, latest=latest)
later = msgspec.msgpack.decode(value, type=ResidencyRecord)
for source in later.sources:
    for part in source.changes:
        part.times = (np.frombuffer(part.times, '<f8') + 60).tobytes()
fleet.apply(changes, later)
latest = dict(fleet.cut(1.9e9).checkpoints)
assert latest
FleetState(0, Fleet(), carry_seconds=600.0, latest=latest).apply(changes, later)
full = no_refills()
full.rows['root'][:8] = full.rows['tokens'][:8] = range(1, 9)
make_room(full)
assert changes >= 5 and offset >= 100, (changes, offset)
assert sum(map(bool, warm.values())) > 5, warm
late = {name: found for name, found in compiled().items() if found != warm[name]}
assert not late, late
"""


def test_nothing_is_compiled_after_warming_up() -> None:
    result = subprocess.run([sys.executable, "-c", _CHILD], capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
