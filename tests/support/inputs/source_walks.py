"""Random logs of one source with everything that can happen to it."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from schemas.events import (
    Accessed,
    Batch,
    Capacity,
    Cleared,
    Closed,
    EngineCounters,
    Event,
    EventsRecord,
    Gap,
    Opened,
    Removed,
    SourceStatus,
    Stored,
    Undecodable,
)

BEGAN = 1_800_000_000.0
COARSE, FINE = 16, 4
CLEARS_ALL = (None, False, True)
ROLES = ("", "prefill", "decode", "both")
"""What records say in turns."""


def pack(hashes: list[int]) -> bytes:
    return b"".join(one.to_bytes(8, "big") for one in hashes)


class Walk:
    """Makes records; whatever it does is allowed by the contract of `schemas.events`."""

    def __init__(self, seed: int, *, hybrid: bool = False, replica: str = "r", began: float = BEGAN) -> None:
        self.rng = random.Random(seed)
        self.hybrid = hybrid
        self.replica = replica
        self.at = began
        self.incarnation = 0
        self.model = "m"
        self.era = self.rng.choice(["map", "array-12"])
        self.media = self.rng.choice([["gpu"], ["gpu", "cpu"], ["gpu", "cpu", "storage"]])
        self.groups = self.rng.choice([[0], [0, 1]])
        self.pool = [self.rng.getrandbits(64) for _ in range(40)]
        self.chains: list[tuple[list[int], list[int]]] = []
        self.seq = 0
        self.opened = False
        self.replayed = 0

    def records(self, count: int) -> Iterator[EventsRecord]:
        for _ in range(count):
            record = self._record()
            if record is not None:
                yield record

    def _record(self) -> EventsRecord | None:
        rng = self.rng
        batches: list[Batch] = []
        incarnation = self.incarnation
        if self.incarnation == 0 or rng.random() < 0.03:
            incarnation = self._new_life(batches)
        first = last = None
        for _ in range(rng.randint(1, 5)):
            self.at += rng.choice([0.01, 0.5, 2.0, 2.0, 7.0, rng.choice([15.0, 25.0, 40.0] * 20 + [5000.0])])
            if rng.random() < 0.2:
                batches.append(Batch(None, self.at, self.at, [self._notice()]))
                continue
            late = rng.choice([0.0, 0.0, 3.0, 25.0])
            clock = rng.choice([0.0] * 20 + [1e6, -1e9])
            events = [event for _ in range(rng.randint(0, 4)) for event in self._events()]
            replayed = self.replayed > 0
            self.replayed -= replayed
            received = self.at + rng.choice([0.02, 0.5])
            batches.append(
                Batch(self.seq, self.at - late + clock, received, events, len(events), replayed=replayed)
            )
            first = self.seq if first is None else first
            last = self.seq
            self.seq += 1
        if rng.random() < 0.03:
            self.seq += rng.randint(1, 3)  # the log lacks what came here
        if rng.random() < 0.05:
            self.replayed = rng.randint(1, 6)
        past = rng.random() < 0.02 and incarnation > 1
        return EventsRecord(
            self.replica,
            self.model,
            f"{self.model}/d",
            0,
            incarnation - 1 if past else incarnation,
            batches,
            first_seq=first,
            last_seq=last,
            engine="vllm",
            wire_era=self.era,
            duplicates=rng.choice([0] * 12 + [2]),
            remarks=rng.choice([[]] * 12 + [["other_rank:1"], [f"unknown_type:B{n}" for n in range(6)]]),
            clears_all=CLEARS_ALL[self.seq % len(CLEARS_ALL)],
            role=ROLES[self.seq // 40 % len(ROLES)],
        )

    def _new_life(self, batches: list[Batch]) -> int:
        rng = self.rng
        self.incarnation += rng.randint(1, 3)
        self.at += rng.choice([0.0, 0.0, 30.0])
        self.seq = rng.choice([0, 0, 7])
        if rng.random() < 0.05:
            self.model = rng.choice(["m", "n"])
        if rng.random() < 0.8:
            batches.append(Batch(None, self.at, self.at, [Opened(self.seq, complete=self.seq == 0)]))
        return self.incarnation

    def _notice(self) -> Event:
        rng = self.rng
        kind = rng.randrange(12)
        if kind == 0:
            lost = rng.randint(1, 4)
            if lost == 4 and self.seq:
                return Gap(self.seq - 1, self.seq - 1, "unconfirmed")
            first, self.seq = self.seq, self.seq + lost
            return Gap(first, self.seq - 1, "replay_truncated")
        if kind == 1:
            # One in three comes again, and is understood.
            seq, self.seq = self.seq, self.seq + (self.seq % 3 > 0)
            return Undecodable("not_msgpack", seq)
        if kind == 2:
            return Undecodable("frame_count")
        if kind in (3, 4):
            return Closed(rng.choice(["restarted", "silent", "removed"]))
        if kind in (5, 6, 7):
            return EngineCounters(
                prefix_cache_hits=rng.randint(0, 9),
                capacity_blocks=rng.choice([None, 20, 21, 30]),
                block_size=rng.choice([None, 16]),
                kv_cache_usage=rng.random(),
                cpu_capacity_tokens=rng.choice([None, None, 320, 1000]),
                unused_blocks=rng.choice([None, None, 0, 1]),
                computed_tokens=self.seq,
                transferred_tokens=self.seq // 64 if self.seq % 2 else None,
                reloaded_tokens=2 * self.seq,
                generation_tokens=3 * self.seq,
            )
        return SourceStatus(connected=kind == 8)

    def _events(self) -> list[Event]:
        rng = self.rng
        kind = rng.randrange(30)
        medium, group = rng.choice(self.media), rng.choice(self.groups)
        raw = "cpu" if medium == "cpu" else None
        if kind == 0:
            return [
                Cleared(rng.choice([None, None, "cpu", "gpu", "disk", ""]), rng.choice([None, None, group]))
            ]
        if kind == 1:
            named = rng.choice([None, "cpu", "gpu", "disk"])
            return [Undecodable("unknown_type", self.seq, rng.randint(1, 3), "BlockPondered", named)]
        if kind == 2:
            odd = bytes(rng.randint(1, 7))
            return [Stored(odd, 16) if rng.random() < 0.5 else Removed(odd)]
        if self.hybrid and medium == "gpu" and rng.random() < 0.8:
            return self._request(group)
        hashes = rng.sample(self.pool, rng.choice([0, 1, 1, 1, 2, 3]))
        if rng.random() < 0.1:
            hashes *= 2
        if kind < 18:
            size = rng.choice([COARSE] * 8 + [5, 0])
            parent = rng.choice([None, pack(self.pool[:1])])
            return [Stored(pack(hashes), size, size * len(hashes), parent, medium, raw, group)]
        return [Removed(pack(hashes), medium, raw, group)]

    def _request(self, group: int) -> list[Event]:
        """A prompt of a hybrid engine, its fine and its coarse chain; or coarse blocks that leave."""
        rng = self.rng
        if self.chains and rng.random() < 0.4:
            _, coarse = rng.choice(self.chains)
            gone = rng.sample(coarse, rng.randint(0, len(coarse)))
            return [Removed(pack(gone), group_idx=group)] if gone else []
        if self.chains and rng.random() < 0.5:
            fine, coarse = ([*chain] for chain in rng.choice(self.chains))
            keep = rng.randint(0, len(coarse))
            fine, coarse = fine[: keep * COARSE // FINE], coarse[:keep]
        else:
            fine, coarse = [], []
        known_fine, known_coarse = len(fine), len(coarse)
        tokens = known_fine * FINE + rng.randint(1, 3 * COARSE)
        fine += [rng.getrandbits(64) for _ in range(tokens // FINE - known_fine)]
        coarse += [rng.getrandbits(64) for _ in range(tokens // COARSE - known_coarse)]
        self.chains.append((fine, coarse))
        events: list[Any] = []
        if rng.random() < 0.2:
            known_fine = 0  # announced again
        for chain, known, size in ((fine, known_fine, FINE), (coarse, known_coarse, COARSE)):
            if len(chain) > known:
                parent = pack([chain[known - 1]]) if known else None
                events.append(
                    Stored(pack(chain[known:]), size, size * (len(chain) - known), parent, group_idx=group)
                )
        if rng.random() < 0.3:
            events.reverse()
        return events


class ObjectWalk(Walk):
    """A source that says bytes of most blocks, how much room it has, and what it uses."""

    def _events(self) -> list[Event]:
        rng = self.rng
        medium, group = rng.choice(self.media), rng.choice(self.groups)
        some = pack(rng.sample(self.pool, rng.choice([0, 1, 1, 2, 6])))
        kind = rng.randrange(20)
        if kind < 5:
            named = rng.choice([None, medium, medium, "disk"])
            return [Accessed(some, named, None, group, hits=rng.random() < 0.5)]
        if kind == 5:
            return [
                Capacity(rng.choice([*self.media, "disk"]), rng.choice([0, 1 << 30, 2**63 - 1])),
                Accessed(bytes(rng.choice([0, 0, 3]))),
            ]
        if kind < 12:
            size = rng.choice([0, 7, 1 << 20, 3 << 20, 1 << 40, 2**63 - 1])
            return [Stored(some, COARSE, medium=medium, group_idx=group, size_bytes=size)]
        return super()._events()


def with_wrong_clocks(records: Iterable[EventsRecord], seed: int) -> Iterator[EventsRecord]:
    """Give a log of one source as a connector writes it whose clock is set wrong and right again.

    The source is silent now and then, perhaps from the beginning, and then only reports come.
    """
    rng = random.Random(seed)
    off = 0.0

    def silence(record: EventsRecord, at: float) -> Iterator[EventsRecord]:
        nonlocal off
        for number in range(rng.randint(2, 6)):
            if rng.random() < 0.6:
                off = rng.choice([0.0, 600.0, -600.0])
            report = SourceStatus(connected=rng.random() < 0.1)
            said = at + 10 * number + off
            yield msgspec.structs.replace(
                record,
                batches=[Batch(None, said, said, [report])],
                first_seq=None,
                last_seq=None,
                duplicates=0,
            )

    for number, record in enumerate(records):
        if number == 0 and rng.random() < 0.5:
            yield from silence(record, BEGAN)
        if rng.random() < 0.1:
            off = rng.choice([0.0, 0.0, 600.0, -600.0])
        batches = [
            msgspec.structs.replace(
                batch, ts=batch.ts + (off if batch.seq is None else 0.0), received_at=batch.received_at + off
            )
            for batch in record.batches
        ]
        yield msgspec.structs.replace(record, batches=batches)
        if batches and rng.random() < 0.3:
            yield from silence(record, batches[-1].received_at - off + 10)
