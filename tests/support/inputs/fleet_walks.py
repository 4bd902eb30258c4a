"""Random walks of a fleet as residency records: fills, losses, restarts, tiers, clocks that go back."""

from __future__ import annotations

import random
import struct
from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from typing import Any

import msgspec
from hypothesis import strategies as st

from pipeline.verify.fleet.transfers import run_of
from schemas.residency import (
    CLEARED,
    EVICTED,
    EXPIRED,
    FILLED,
    FILLS,
    GENERATED,
    RETURNED,
    SUBSUMED,
    Decisions,
    ResidencyChanges,
    ResidencyRecord,
    SourceChanges,
)

START = 1_000_000.0
TRUSTS = ("complete", "complete", "complete", "partial", "degraded")

CHAINS = [
    (100, 1, 0),
    (100, 2, 0),
    (100, 3, 0),
    (103, 1, 1),
    (103, 2, 1),
    (0, 0, 0),
    (106, 1, 2),
    (107, 9, 0),
]
"""Root, depth and adapter (from 1) of each block."""

ELSEWHERE = 1 << 40
"""Hashes of another shard."""

steps = st.tuples(
    st.integers(0, 3),  # source
    st.sampled_from(
        ["block"] * 12
        + ["again", "stray", "clear", "restart", "trust", "idle", "away", "ahead", "cut", "cut"]
    ),
    st.integers(0, 7),  # block
    st.sampled_from([("gpu", 0)] * 5 + [("gpu", 1), ("cpu", 0), ("disk", 0), ("fs", 0), ("LMCache", 0)]),
    st.floats(-1.0, 8.0),  # seconds since the step before
)
walks = st.lists(steps, max_size=150)


class Fleet:
    """Turns steps into records; remembers what is resident so that most changes are real ones."""

    def __init__(self, salted: Collection[int] = (), receivers: Collection[int] = ()) -> None:
        """`salted`: sources whose engine hashes with another seed in each of its lives. `receivers`: those
        that may announce what they did not compute."""
        self.salted = salted
        self.receivers = receivers
        self.at = START
        self.records: list[ResidencyRecord] = []
        self.incarnations: defaultdict[int, int] = defaultdict(lambda: 1)
        self.trusts: defaultdict[int, Any] = defaultdict(lambda: "complete")
        self.held: dict[int, dict[tuple[str, int, int], int]] = defaultdict(dict)
        self.stored: defaultdict[Any, int] = defaultdict(int)
        self.undecided: list[int] = []
        self.waiting: dict[
            tuple[int, int], dict[tuple[str, int], list[tuple[int, int, float, int, int]]]
        ] = {}

    def step(self, source: int, what: str, block: int, pool: tuple[str, int], seconds: float) -> None:
        self.at += seconds
        held = self.held[source]
        place = (*pool, block)
        if what == "block":
            if place in held:
                self._change(source, place, EVICTED if block % 5 else EXPIRED)
                del held[place]
            else:
                held[place] = 1
                on_gpu = {0: GENERATED, 1: RETURNED}.get((block + int(self.at)) % 6, FILLED)
                self._change(source, place, on_gpu if pool[0] == "gpu" else FILLED)
        elif what == "again":
            held[place] = 1
            self._change(source, place, FILLED)
        elif what == "stray":
            self._change(source, place, EVICTED)
            held.pop(place, None)
        elif what == "clear":
            for other in [other for other in held if other[0] == "gpu"]:
                self._change(source, other, CLEARED)
                del held[other]
        elif what == "restart":
            # As the replica agent does: at the end of the window.
            for other in list(held):
                self._change(source, other, CLEARED, at=(self.at // 10 + 1) * 10 - 1e-3)
            held.clear()
            self.incarnations[source] += 1
        elif what == "trust":
            self.trusts[source] = TRUSTS[block % len(TRUSTS)]
        elif what == "idle":
            self.at += 40 * abs(seconds)
        elif what == "away":
            # For days, now and then: whoever has nothing is forgotten.
            self.at += 30_000 * abs(seconds)
        elif what == "ahead":
            # The clock of one source, which is the shard's from then on.
            held[place] = 1
            self._change(source, place, FILLED, at=self.at + 30_000 * abs(seconds))
        elif what == "cut":
            self.cut(block)

    def physical_tokens(self) -> Counter[tuple[str, str, str, int]]:
        """Tokens that are resident, once for each source, by hash domain, model, medium and group."""
        tokens: Counter[tuple[str, str, str, int]] = Counter()
        for source, held in self.held.items():
            model = _model(source, self.incarnations[source])
            for medium, group, _ in held:
                tokens[_domain(source), model, medium, group] += 16 << group
        return tokens

    def _change(self, source: int, place: tuple[str, int, int], kind: int, at: float | None = None) -> None:
        medium, group, block = place
        size = 16 << group
        pools = self.waiting.setdefault((source, self.incarnations[source]), {})
        key = (source, medium, group)
        changes = pools.setdefault((medium, group), [])
        changes.append((block, kind, self.at if at is None else at, size, self.stored[key]))
        if kind in FILLS:
            # Copies come besides: what is stored grows by more than what is filled.
            self.stored[key] += size * (1 + block % 2)
            if group == 1 and block == 7:
                changes.append((block, SUBSUMED, self.at, size, self.stored[key]))
                self.held[source].pop(place, None)

    def cut(self, how: int) -> None:
        """One record of some sources, or a record for each."""
        sources = [
            SourceChanges(
                f"r{source // 2}",
                _model(source, incarnation),
                _domain(source),
                source % 2,
                incarnation,
                self.trusts[source],
                [
                    self._packed(source, incarnation, pool, changes, stored_known=how != 3)
                    for pool, changes in pools.items()
                ],
                source in self.receivers,
            )
            for (source, incarnation), pools in self.waiting.items()
        ]
        self.waiting = {}
        for part in [sources] if how % 2 else [[source] for source in sources]:
            if part:
                self.records.append(ResidencyRecord(0, 0, len(self.records), part))
        if how % 4 == 0:
            self._decide()

    def _packed(
        self,
        source: int,
        incarnation: int,
        pool: tuple[str, int],
        changes: list[tuple[int, int, float, int, int]],
        *,
        stored_known: bool,
    ) -> ResidencyChanges:
        seed = self._seed(source, incarnation)
        packed = _packed(*pool, changes, stored_known=stored_known, seed=seed)
        if source in self.receivers:
            ends = []
            for block, kind, at, *_ in changes:
                if kind in FILLS:
                    # It came alone, as the last one of its run, or with one that is in another shard.
                    ends.append((0, block + seed, ELSEWHERE + block, ELSEWHERE + block)[int(at) % 4])
                    if ends[-1] >= ELSEWHERE and pool[0] == "gpu":
                        self.undecided.append(
                            run_of(ends[-1], at, (f"r{source // 2}", source % 2), incarnation, pool[1])
                        )
            packed.ends = struct.pack(f">{len(ends)}Q", *ends)
        return packed

    def _decide(self) -> None:
        """The other shard decides on most runs."""
        runs, self.undecided = [run for run in self.undecided if run % 5], []
        if self.receivers:
            decisions = Decisions(
                1,
                self.at,
                struct.pack(f"<{len(runs)}Q", *runs),
                bytes(run >> 8 & 1 for run in runs),
            )
            self.records.append(ResidencyRecord(1, 1, 0, [], decisions=decisions))

    def _seed(self, source: int, incarnation: int) -> int:
        """Added to hashes: what was one block has the same place among first blocks then."""
        return (source + 4 * incarnation) << 15 if source in self.salted else 0


def _domain(source: int) -> str:
    return "d/one" if source < 3 else "d/two"


def _model(source: int, incarnation: int) -> str:
    """Now and then a source names another model than those that share its hash domain."""
    return "n" if source == 1 and incarnation == 2 else "m"


def _packed(
    medium: str, group: int, changes: list[tuple[int, int, float, int, int]], *, stored_known: bool, seed: int
) -> ResidencyChanges:
    blocks, kinds, times, sizes, stored = zip(*changes, strict=True)
    count = len(changes)
    base = stored[0]
    packed = ResidencyChanges(
        medium,
        group,
        struct.pack(f">{count}Q", *(block + seed for block in blocks)),
        bytes(kinds),
        struct.pack(f"<{count}d", *times),
        struct.pack(f"<{count}I", *sizes),
        struct.pack(f"<{count}I", *(each - base for each in stored)) if stored_known else b"",
        base if stored_known else 0,
        medium == "LMCache",
    )
    if medium == "gpu":
        chains = [CHAINS[block] for block, kind, *_ in changes if kind in FILLS]
        # Now and then a source does not know where its chains begin.
        packed.roots = struct.pack(
            f">{len(chains)}Q", *((root and root + seed) * (times[0] % 7 > 1) for root, _, _ in chains)
        )
        packed.depths = struct.pack(f"<{len(chains)}H", *(depth for _, depth, _ in chains))
        packed.loras = ["sql", "poems"]
        packed.lora_codes = struct.pack(f"<{len(chains)}H", *(lora for _, _, lora in chains))
    return packed


def walked(walk: list[Any], salted: Collection[int] = (), receivers: Collection[int] = ()) -> Fleet:
    """Return the fleet after a walk, with all records cut."""
    fleet = Fleet(salted, receivers)
    for step in walk:
        fleet.step(*step)
    fleet.cut(1)
    return fleet


def partitioned(
    records: Sequence[ResidencyRecord], partitions: int, seed: int, *, undecided: bool = False
) -> list[ResidencyRecord]:
    """Return the records as those of partitions of the events topic that are read one ahead of the other.

    Sources of one replica receive KV from others; `undecided`: now and then that is not known yet, or not so.
    Each says how far its partition is read: to the latest time of the records before, in the walk's order.
    The last ones say that hours have passed since.
    """
    rng = random.Random(seed)
    of: list[list[ResidencyRecord]] = [[] for _ in range(partitions)]
    clock = START
    for record in records:
        latest = [_latest(source) for source in record.sources]
        for source, at in zip(record.sources, latest, strict=True):
            source.receives = source.replica == "r1"
            if undecided and source.receives:
                source.undecided = int(10 * at) % 3 == 0
                source.receives = not source.undecided and int(at) % 4 > 0
        clock = max([clock, *(at for at in latest if at < clock + 50.0)])
        for number in range(partitions):
            sources = [source for source in record.sources if _partition(source, partitions) == number]
            if undecided and sources and rng.random() < 0.2:
                decision = msgspec.structs.replace(
                    rng.choice(sources), changes=[], receives=rng.random() < 0.5, undecided=False
                )
                sources = [*sources, decision]
            if sources or rng.random() < 0.2:
                offset = rng.choice([-0.25, 0.0]) if sources else None
                of[number].append(ResidencyRecord(number, 0, 0, sources, partitions, clock, offset))
    for number, several in enumerate(of):
        several += [ResidencyRecord(number, 0, 0, [], partitions, clock + 1e7)]
    mixed: list[ResidencyRecord] = []
    while any(of):
        ahead = rng.choice([several for several in of if several])
        for _ in range(min(rng.randint(1, 9), len(ahead))):
            mixed.append(ahead.pop(0))
    return mixed


def _partition(source: SourceChanges, partitions: int) -> int:
    return (2 * int(source.replica[1:]) + source.dp_rank) % partitions


def _latest(source: SourceChanges) -> float:
    return max(max(struct.unpack(f"<{len(part.kinds)}d", part.times)) for part in source.changes)
