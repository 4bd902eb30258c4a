"""Compiles everything that the agents run per block, before the first record comes."""

from __future__ import annotations

import msgspec
import numpy as np

from pipeline.fleet.kernel.refills import make_room, no_refills, refills_of
from pipeline.fleet.snapshot import MAX_SECONDS
from pipeline.fleet.state import FleetState
from pipeline.reading.records import read
from pipeline.residency.partition import PartitionState
from schemas.events import Batch, EventsRecord, Opened, Removed, Stored
from schemas.residency import ResidencyRecord
from schemas.settings import Fleet, Worker

_BLOCKS = 2048
"""Enough to make every table grow."""


def warm_up(*, fleet_agent: bool = True) -> None:
    """Run blocks through the replica agent, and the fleet agent if it runs, and restore their checkpoints.

    Takes seconds where nothing is compiled yet, and a fraction of one where numba has cached it.
    """
    hashes = np.arange(1, _BLOCKS + 1).astype(">u8").tobytes()
    batches = [
        Batch(None, 0.0, 0.0, [Opened(0, True)]),
        Batch(0, 1.0, 1.0, [Stored(hashes, 16)]),
        Batch(1, 2.0, 2.0, [Removed(hashes)]),
        Batch(2, 3.0, 3.0, [Stored(hashes, 16)]),  # filled again, and held by both: a hot prefix
        Batch(3, 30.0, 30.0, [Removed(hashes[: len(hashes) // 2])]),  # in a later window
    ]
    replica = PartitionState(0, Worker(), shards=1)
    for offset, name in enumerate(("one", "other")):  # the fleet agent orders what comes from several
        replica.apply(offset, EventsRecord(name, "", "", 0, 1, batches))
    more = [Batch(4, 31.0, 31.0, [Stored(hashes, 16), Removed(hashes)])]
    value = msgspec.msgpack.encode(EventsRecord("one", "", "", 0, 1, more))
    replica.apply_all([(2, run) for run in read([value], Worker(), offsets=[2]).runs])
    linked = [
        Batch(None, 0.0, 0.0, [Opened(0, True)]),
        Batch(0, 1.0, 1.0, [Stored(hashes, 16, lora="adapter", links=hashes)]),
    ]
    replica.apply(3, EventsRecord("linked", "", "", 0, 1, [*linked, Batch(1, 2.0, 2.0, [Removed(hashes)])]))
    replica.apply(4, EventsRecord("kept", "", "", 0, 1, linked))
    replica.leaves()
    cut = replica.cut(30.0)
    saved = {key: value for key, value in cut.checkpoints if value is not None}
    PartitionState.restore(0, Worker(), shards=1, latest=saved)
    if not fleet_agent:
        return
    fleet = FleetState(0, Fleet(), carry_seconds=0.0)
    for _, _, value in cut.residency:
        fleet.apply(0, msgspec.msgpack.decode(value, type=ResidencyRecord))
    fleet.cut(30.0)
    latest = dict(fleet.cut(30.0 + MAX_SECONDS).checkpoints)
    FleetState(0, Fleet(), carry_seconds=0.0, latest=latest)
    refills = no_refills()
    refills.rows[0]["root"] = refills.rows[0]["tokens"] = 1
    make_room(refills_of(refills.rows[:1], 0))
