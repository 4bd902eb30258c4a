"""With content hashes, engines of other seeds and algorithms give the fleet the figures of alike ones."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import msgspec
import pytest

from connectors.frames.bundle import Bundle
from connectors.normalise.columns import DONE, STATUS
from connectors.normalise.forwarding import Forwarding
from connectors.normalise.links import Linker
from connectors.normalise.normaliser import Normaliser
from connectors.normalise.scan import scan
from pipeline.fleet.state import FleetState
from pipeline.reading.plain_runs import PlainRun
from pipeline.simulator.engine.scheduler import Engine
from pipeline.simulator.engine.settings import EngineSettings
from pipeline.simulator.traffic.workload import WorkloadSettings, arrivals
from pipeline.simulator.wire.encoding import encoded_batch
from pipeline.simulator.wire.eras import ERAS
from pipeline.verify.fleet.parsed import columns_of
from pipeline.verify.replica.residency_sums import Changes, Resident
from pipeline.verify.replica.source import SourceRecount
from schemas.events import Batch, Cleared, Event, EventsRecord, Removed, Stored
from schemas.fleet_rows import FillsRow, RedundancyRow
from schemas.hashing.content import Content, follow
from schemas.residency import FILLS, ResidencyChanges, ResidencyRecord
from schemas.settings import Fleet, Worker
from tests.support.fleet_recount import compared, rows_of
from tests.support.inputs.event_records import opened, record, sent
from tests.support.inputs.packed import packed
from tests.support.plain_runs import plain_runs
from tests.support.replica_agent import ReplicaAgent, changes_of, residency_of
from tests.support.suite.night import at_night

START = 1_700_000_000.0
REPLICAS = 4
SHARDS = 3
STEPS = 400
STEP_SECONDS = 0.25
KEY = b"a key of the fleet"
ONE_SEED = ("7",) * REPLICAS
SEEDS = tuple(f"seed of {number}" for number in range(REPLICAS))
ERAS_OF = ("vllm-0.33", "vllm-0.24", "sglang-0.5.23", "trtllm-1.3")
ALGORITHMS = ("uint64", "bytes16", "int64", "uint64")


@dataclass
class Played:
    """What a fleet's workers made of the same requests."""

    rows: list[Any] = field(default_factory=list)
    residency: list[list[ResidencyRecord]] = field(default_factory=lambda: [[] for _ in range(SHARDS)])
    recounts: dict[str, SourceRecount] = field(default_factory=dict)
    without: Counter[str] = field(default_factory=Counter)

    def causes(self) -> Counter[tuple[Any, ...]]:
        """Return filled blocks by replica, window and cause, over all shards."""
        found: Counter[tuple[Any, ...]] = Counter()
        latest = {(row.window, row.replica, row.shard): row for row in self.rows if isinstance(row, FillsRow)}
        for (window, replica, _), row in latest.items():
            for column in FillsRow.__struct_fields__:
                if column.endswith("_blocks"):
                    found[replica, window, column] += getattr(row, column)
        return +found

    def redundancy(self) -> tuple[int, int]:
        """Return (distinct, physical) tokens in the end."""
        last = {(row.shard, row.medium): row for row in self.rows if isinstance(row, RedundancyRow)}
        rows = [row for (_, medium), row in last.items() if medium == "gpu"]
        return sum(row.unique_tokens for row in rows), sum(row.physical_tokens for row in rows)


class Replica:
    """An engine, and the connector that reads it."""

    def __init__(
        self, name: str, era: str, form: Any, linker: Linker | None, settings: EngineSettings
    ) -> None:
        self.name, self.era, self.form, self.linker = name, ERAS[era], form, linker
        self.engine = Engine(settings)
        self.seq = 0

    def step(self, at: float) -> EventsRecord | None:
        """Return the record of the next step. The connector is another one for each: it remembers nothing."""
        events = self.engine.step()
        if not events:
            return None
        payload = encoded_batch(self.era, at, events, 0, self.form)
        normaliser = Normaliser(max_frame_bytes=1 << 20, forwarding=Forwarding(linker=self.linker))
        batch = normaliser.normalise(payload, seq=self.seq, received_at=at)
        if self.linker is not None:
            bundle = Bundle.of([(b"", self.seq.to_bytes(8, "big"), payload)])
            done = scan(bundle, at, max_frame_bytes=1 << 20, forwarding=Forwarding(linker=self.linker))
            assert done.columns[STATUS, 0] == DONE
            assert msgspec.msgpack.decode(done.encoded.tobytes(), type=Batch) == batch
        begin = [] if self.seq else [opened(at)]
        self.seq += 1
        return record(*begin, batch, replica=self.name, domain="m/x/t")


def played(
    seeds: Sequence[str],
    *,
    eras: Sequence[str] = ("vllm-0.33",) * REPLICAS,
    forms: Sequence[Any] = (None,) * REPLICAS,
    linker: Linker | None = None,
    cpu_blocks: int = 0,
    lora_share: float = 0.0,
    killed: bool = False,
) -> Played:
    """Play the same requests; `killed`: workers are lost again and again and go on from their checkpoints."""
    played = Played()
    replicas = [
        Replica(f"r{number}", era, form, linker, EngineSettings(260, cpu_blocks=cpu_blocks, hash_seed=seed))
        for number, (seed, era, form) in enumerate(zip(seeds, eras, forms, strict=True))
    ]
    worker = Worker(max_clock_behind_seconds=1e12)
    agent = ReplicaAgent(worker, shards=SHARDS)
    fleet = [FleetState(shard, Fleet(), carry_seconds=0.0) for shard in range(SHARDS)]
    coming = arrivals(WorkloadSettings(3, 4.0, 5, 160, max_prompt_tokens=900, lora_share=lora_share))
    due, request = next(coming)
    number = 0
    for step in range(1, STEPS + 1):
        at = START + step * STEP_SECONDS
        while due <= step * STEP_SECONDS:
            replicas[number % REPLICAS].engine.submit(request)
            number += 1
            due, request = next(coming)
        for replica in replicas:
            said = replica.step(at)
            if said is None:
                continue
            offset = len(agent.log)
            played.recounts.setdefault(said.replica, SourceRecount(said.replica, 0, worker)).apply(
                offset, said
            )
            run: PlainRun | None = plain_runs([msgspec.msgpack.encode(said)], worker, first=offset)[0]
            agent.apply(said if run is None else run)
        if step % 40 == 0:
            state = agent.state
            for residency in residency_of(agent.moved(at) if killed else agent.cut(at)):
                of_shard = played.residency[residency.shard]
                fleet[residency.shard].apply(2 * len(of_shard), residency)
                of_shard.append(residency)
            played.without += state.take_without_content()
            played.rows += [row for each in fleet for row in each.cut(at).rows]
    return played


def follow_changes(resident: set[int], pool: ResidencyChanges) -> None:
    columns = columns_of(pool)
    for kind, block in zip(columns.kinds, columns.hashes, strict=True):
        assert (block in resident) == (kind not in FILLS)
        resident ^= {block}


def assert_recounted(played: Played) -> None:
    """The topic says what the recount of the events says, and the rows what that of the topic says."""
    resident: dict[tuple[str, str, int], set[int]] = {}
    changes: dict[tuple[str, str, int], Changes] = {}
    for source in (source for shard in played.residency for told in shard for source in told.sources):
        for pool in source.changes:
            key = source.replica, pool.medium, pool.group_idx
            changes.setdefault(key, Changes()).count_columns(columns_of(pool))
            follow_changes(resident.setdefault(key, set()), pool)
    for replica, recount in played.recounts.items():
        for pool_of_life, sums in recount.residency_sums().items():
            key = replica, pool_of_life.medium, pool_of_life.group_idx
            assert sums.changes == changes[key]
            assert sums.resident == Resident.of(resident[key])
    for records in played.residency:
        findings = compared(records, rows_of(records, Fleet()), Fleet())
        assert findings.equal, findings.kept[:3]
        assert sum(findings.compared.values()) > 10


@pytest.fixture(scope="module")
def alike() -> Played:
    return played(ONE_SEED)


def test_without_content_hashes_nothing_matches_across_seeds(alike: Played) -> None:
    apart = played(SEEDS)
    assert sum(count for (_, _, column), count in alike.causes().items() if column == "peer_blocks") > 300
    assert not any(column == "peer_blocks" for _, _, column in apart.causes())
    distinct, physical = apart.redundancy()
    assert distinct == physical


@cache
def with_content_hashes(key: bytes, *, killed: bool) -> Played:
    return played(SEEDS, linker=Linker(key), killed=killed)


@pytest.mark.parametrize("killed", [True, *at_night([False])])
@pytest.mark.parametrize("key", [KEY, *at_night([b""])], ids=["key", "no key"])
def test_with_content_hashes_the_figures_are_those_of_one_seed(
    alike: Played, key: bytes, killed: bool
) -> None:
    apart = with_content_hashes(key, killed=killed)
    assert apart.causes() == alike.causes()
    assert apart.redundancy() == alike.redundancy()
    assert not apart.without
    assert_recounted(apart)


@pytest.mark.night
def test_other_engines_and_algorithms_compare() -> None:
    alike = played(ONE_SEED, eras=ERAS_OF, linker=Linker(KEY))
    apart = played(SEEDS, eras=ERAS_OF, forms=ALGORITHMS, linker=Linker(KEY))
    assert apart.causes() == alike.causes()
    assert sum(count for (_, _, column), count in apart.causes().items() if column == "peer_blocks") > 300
    assert_recounted(apart)


@pytest.mark.night
@pytest.mark.parametrize("killed", [True, False])
def test_blocks_on_the_cpu_are_those_of_the_gpu(killed: bool) -> None:
    alike = played(ONE_SEED, cpu_blocks=300)
    apart = played(SEEDS, cpu_blocks=300, linker=Linker(KEY), killed=killed)
    assert apart.causes() == alike.causes()
    assert any(column == "promoted_blocks" for _, _, column in apart.causes())
    assert_recounted(apart)


@pytest.mark.night
def test_adapters_are_apart() -> None:
    alike = played(ONE_SEED, lora_share=0.5)
    apart = played(SEEDS, lora_share=0.5, linker=Linker(b""))
    assert apart.causes() == alike.causes()


def test_the_fleet_knows_blocks_by_the_hashes_that_clients_compute() -> None:
    found = with_content_hashes(KEY, killed=True)
    rng = random.Random(1)
    named = {
        block
        for shard in found.residency
        for told in shard
        for source in told.sources
        for pool in source.changes
        for block in columns_of(pool).hashes
    }
    coming = arrivals(WorkloadSettings(3, 4.0, 5, 160, max_prompt_tokens=900))
    prompts = [next(coming)[1].prompt for _ in range(60)]
    for prompt in rng.sample(prompts, 20):
        assert {*Content(16, KEY).words(prompt)} <= named
        assert not {*Content(16, b"another key of a fleet").words(prompt)} & named


def test_blocks_keep_their_names_when_a_group_shows_a_second_granularity() -> None:
    """What came before leaves under its content hash, what comes later has the engine's."""

    def stored(hashes: tuple[int, ...], size: int, links: bytes = b"") -> Stored:
        return Stored(packed(*hashes), size, size * len(hashes), links=links)

    links = (0x5151, 0x6161, 0x7171)
    first, second = follow(0, links[0]), follow(follow(0, links[0]), links[1])
    steps: list[Event] = [
        stored((1, 2), 64, packed(*links[:2])),
        stored((7, 8), 64, packed(*links[1:])),
        stored((9,), 128, packed(links[2])),
        stored((3, 4), 64, packed(*links[:2])),
        Removed(packed(9)),
        Removed(packed(1)),
        stored((1, 5), 64),
        Cleared(),
    ]
    worker = Worker(max_clock_behind_seconds=1e12)
    agent, recount = ReplicaAgent(worker), SourceRecount("r", 0, worker)
    resident: set[int] = set()
    for seq, event in enumerate(steps):
        agent.apply(sent(seq, START + seq, event))
        recount.apply(seq, agent.log[seq])
        for pool in changes_of(agent.moved(START + seq)):
            follow_changes(resident, pool)
        (sums,) = recount.residency_sums().values()
        assert sums.resident == Resident.of(resident)
        assert seq > 0 or resident == {first, second}
        assert seq != 2 or (9 in resident and len(resident) == 3 and not resident & {1, 2, 7, 8})
    assert not resident
