"""What is left to do after a kill: bytes of checkpoints, and processor time to load and to apply again.

Run as a program: `after_kill.py REPLICAS SECONDS [SHARE...]`, a state with all replicas in one partition,
without Kafka. Each replica holds 10,000 blocks and publishes 20 batches a second, of 8 blocks that come and 8
that leave. SHARE: changes between two bases, of the blocks. Prints a figure a line, as name, value and unit
between tabs; all times are of the processor.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence

import msgspec
import numpy as np

from pipeline.applying.applier import Applier
from pipeline.applying.offered import Offered
from pipeline.index.following.partition import IndexedPartition
from pipeline.index.following.sources import Sources
from pipeline.reading.events_reader import EventsReader
from pipeline.residency.checkpoint import bases
from pipeline.residency.partition import PartitionState
from pipeline.worker.warming import warm_up
from schemas.events import Batch, EventsRecord, Opened, Removed, Stored
from schemas.settings import Settings, Worker

START = 1.8e9
RATE = 20
"""Batches a second."""
BLOCKS = 8
"""Of a batch that come, and as many that leave."""
HELD = 10_000
RECORDS = 2
"""A second."""
SHARDS = 8
AT_ONCE = 64
"""Records that are applied in one go."""

_encode = msgspec.msgpack.Encoder().encode


def packed(replica: int, first: int, count: int) -> bytes:
    """Return hashes of a replica's blocks by their numbers."""
    numbers = np.arange(first + 1, first + count + 1, dtype=np.uint64)
    return (numbers * np.uint64((replica * 0x9E3779B97F4A7C15 | 1) % 2**64)).astype(">u8").tobytes()


def batch(replica: int, seq: int) -> Batch:
    at = START + seq / RATE
    if seq == 0:
        return Batch(0, at, at + 0.01, [Stored(packed(replica, 0, HELD), 16, 16 * HELD)], engine_events=1)
    first = HELD + seq * BLOCKS
    left, came = packed(replica, first - HELD, BLOCKS), packed(replica, first, BLOCKS)
    return Batch(seq, at, at + 0.01, [Removed(left), Stored(came, 16, 16 * BLOCKS)], engine_events=2)


def log(replicas: int, seconds: int) -> list[Offered]:
    """Return the records of a partition, those of a second side by side."""
    found: list[Offered] = []
    batches = RATE // RECORDS
    for number in range(seconds * RECORDS):
        for replica in range(1, replicas + 1):
            several = [batch(replica, seq) for seq in range(number * batches, (number + 1) * batches)]
            first, last = several[0].seq, several[-1].seq
            if number == 0:
                several.insert(0, Batch(None, START, START, [Opened(0, complete=True)]))
            record = EventsRecord(
                f"r{replica}", "m", "d", 0, 1, several, first, last, engine="vllm", wire_era="map"
            )
            headers = [("content-type", b"application/msgpack")]
            found.append(Offered(len(found), _encode(record), headers, b"", several[-1].ts))
    return found


def apply(reader: EventsReader, state: PartitionState, records: Sequence[Offered]) -> None:
    applier = Applier(reader, state, 0, set_aside=lambda offered, refused: None)
    for begin in range(0, len(records), AT_ONCE):
        applier.offer(records[begin : begin + AT_ONCE])


def measure(replicas: int, seconds: int, records: Sequence[Offered]) -> None:
    """Play the log with a cut each second, and go on from what was committed."""
    reader = EventsReader(Settings())
    state = PartitionState(0, Worker(), shards=SHARDS)
    latest: dict[bytes, bytes] = {}
    a_second = replicas * RECORDS
    sizes, cutting, applying, behind = [], 0.0, 0.0, []
    for second in range(1, seconds + 1):
        began = time.process_time()
        apply(reader, state, records[(second - 1) * a_second : second * a_second])
        applying += time.process_time() - began
        began = time.process_time()
        cut = state.cut(START + second)
        cutting += time.process_time() - began
        sizes.append(sum(len(key) + len(value or b"") for key, value in cut.checkpoints))
        for key, value in cut.checkpoints:
            if value is None:
                latest.pop(key, None)
            else:
                latest[key] = value
        if second > seconds // 3 and second % 10 == 0:
            restored = PartitionState(0, Worker(), shards=SHARDS)
            restored.load(latest)
            behind.append((state.next_offset - restored.next_offset) / a_second)
    settled = sizes[seconds // 3 :]
    batches = replicas * RATE
    say("checkpoints", sum(settled) / len(settled) / batches, "B a batch")
    say("largest checkpoint", max(settled) / 1e6, "MB")
    say("apply", 1e6 * applying / seconds / batches, "us a batch")
    say("cut", 1e6 * cutting / seconds / batches, "us a batch")
    say("log to apply again, mean", sum(behind) / len(behind), "s")
    say("log to apply again, most", max(behind), "s")
    makes: dict[str, Callable[[], PartitionState]] = {
        "agent": lambda: PartitionState(0, Worker(), shards=SHARDS),
        "index": lambda: IndexedPartition(0, Worker(), Sources()),
    }
    for name, make in makes.items():
        began = time.process_time()
        again = make()
        again.load(latest)
        say(f"{name}: load {sum(map(len, latest.values())) / 1e6:.0f} MB", time.process_time() - began, "s")
        rest = records[again.next_offset :]
        began = time.process_time()
        apply(reader, again, rest)
        said = f"{name}: apply {len(rest) / a_second:.0f} s of log again"
        say(said, time.process_time() - began, "s")


def say(name: str, value: float, unit: str) -> None:
    print(f"{name}\t{value:.3f}\t{unit}", flush=True)


def main() -> None:
    replicas, seconds = int(sys.argv[1]), int(sys.argv[2])
    warm_up(fleet_agent=False)
    records = log(replicas, seconds)
    for share in sys.argv[3:] or [str(bases.SHARE)]:
        bases.SHARE = float(share)
        say("share", bases.SHARE, "")
        measure(replicas, seconds, records)


if __name__ == "__main__":
    main()
