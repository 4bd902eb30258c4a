"""Questions by content hash: all replicas that hold a prompt, whatever their engine, seed and algorithm."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest

from connectors.normalise.forwarding import Forwarding
from connectors.normalise.links import Linker
from connectors.normalise.normaliser import Normaliser
from pipeline.index.following.partition import IndexedPartition
from pipeline.index.following.sources import Sources
from pipeline.index.holdings import holdings
from pipeline.index.holdings.counting import held_by
from pipeline.index.index import Index
from pipeline.index.questions.question import Question
from pipeline.reading.records import plain_runs
from pipeline.residency.partition import PartitionState
from pipeline.simulator.engine.scheduler import Engine
from pipeline.simulator.engine.settings import EngineSettings
from pipeline.simulator.traffic.workload import WorkloadSettings, arrivals
from pipeline.simulator.wire.encoding import encoded_batch
from pipeline.simulator.wire.eras import ERAS
from pipeline.verify.replica.copies import Copies
from pipeline.verify.replica.source import SourceRecount
from schemas.events import Batch, Closed, EventsRecord, Opened, Removed, Stored
from schemas.hashing.content import Content, follow
from schemas.settings import Worker, hash_domain
from tests.support.inputs.source_walks import pack

START = 1_700_000_000.0
KEY = b"a key of the fleet"
ENGINES = (
    ("vllm-0.33", None, "seed a"),
    ("vllm-0.24", "bytes16", "seed b"),
    ("sglang-0.5.23", None, "seed c"),
    ("trtllm-1.3", None, "seed d"),
)
STEPS = 240
WORKER = Worker(max_clock_behind_seconds=1e12)


def held(recount: SourceRecount, medium: str) -> set[int]:
    pool = recount.pools.get((medium, 0))
    return {*pool.contents.values()} if isinstance(pool, Copies) else set()


def leading(words: list[int], blocks: set[int], begin: int = 0) -> int:
    while begin < len(words) and words[begin] in blocks:
        begin += 1
    return begin


def expected(recounts: dict[str, SourceRecount], words: list[int]) -> dict[str, tuple[int, int]]:
    """Return {replica: tokens on the GPU, and going on from there on the CPU} of those that hold any."""
    found = {}
    for name, recount in recounts.items():
        gpu = leading(words, held(recount, "gpu"))
        cpu = leading(words, held(recount, "cpu"), gpu)
        if cpu:
            found[name] = (16 * gpu, 16 * cpu)
    return found


def told(sources: Sources, words: list[int], **more: Any) -> dict[str, tuple[int, int]]:
    index, question = Index(sources), Question("m", block_hashes=[], **more)
    answer = index.answer(question, index.scopes_of(question), [*words], 0.0)
    return {name: (match.gpu, match.cpu) for name, match in answer.instances.items()}


@pytest.mark.parametrize("linked", [True, False])
def test_every_answer_is_that_of_the_recount(linked: bool) -> None:
    linker = Linker(KEY) if linked else None
    domain = hash_domain("m", "content" if linked else "x", "default")
    engines = {
        f"r{number}": Engine(EngineSettings(200, cpu_blocks=200, hash_seed=seed))
        for number, (_, _, seed) in enumerate(ENGINES)
    }
    normalisers = {
        name: Normaliser(max_frame_bytes=1 << 20, forwarding=Forwarding(linker=linker)) for name in engines
    }
    recounts = {name: SourceRecount(name, 0, WORKER) for name in engines}
    sources = Sources()
    partition = IndexedPartition(0, WORKER, sources)
    state = PartitionState(0, WORKER, shards=1)
    saved: dict[bytes, bytes | None] = {}
    rng = random.Random(5)
    coming = arrivals(WorkloadSettings(3, 4.0, 5, 160, max_prompt_tokens=900))
    due, request = next(coming)
    prompts: list[tuple[int, ...]] = []
    offset = matched = several = 0
    seqs, lives = dict.fromkeys(engines, 0), dict.fromkeys(engines, 1)
    for step in range(1, STEPS + 1):
        at = START + step / 4
        while due <= step / 4:
            [*engines.values()][len(prompts) % len(engines)].submit(request)
            prompts.append(request.prompt)
            due, request = next(coming)
        for number, (name, engine) in enumerate(engines.items()):
            era, form, _ = ENGINES[number]
            events = engine.step()
            if not events:
                continue
            payload = encoded_batch(ERAS[era], at, events, 0, form)
            batch = normalisers[name].normalise(payload, seq=seqs[name], received_at=at)
            opened = [] if seqs[name] else [Batch(None, at, at, [Opened(0, complete=True)])]
            record = EventsRecord(name, "m", domain, 0, lives[name], [*opened, batch], batch.seq, batch.seq)
            seqs[name] += 1
            run = plain_runs([msgspec.msgpack.encode(record)], WORKER, first=offset)[0]
            for each in (state, partition):
                each.apply(offset, record if run is None else run)
            recounts[name].apply(offset, record)
            offset += 1
        if step == STEPS // 2:  # an engine restarts
            closing = [Batch(None, at, at, [Closed("restarted")])]
            record = EventsRecord("r1", "m", domain, 0, lives["r1"], closing)
            for each in (state, partition, recounts["r1"]):
                each.apply(offset, record)
            offset += 1
            lives["r1"], seqs["r1"] = 2, 0
            engines["r1"] = Engine(EngineSettings(200, cpu_blocks=200, hash_seed="seed of another life"))
        if step % 60 == 0:  # the index is killed, and begins from the workers' checkpoint
            state.leaves()
            saved.update(state.cut(at).checkpoints)
            sources = Sources()
            partition = IndexedPartition(0, WORKER, sources)
            partition.load({key: value for key, value in saved.items() if value is not None})
        partition.settle()
        for prompt in rng.sample(prompts, min(len(prompts), 3)):
            words = Content(16, KEY).words(prompt)
            wanted = expected(recounts, words)
            assert told(sources, words) == wanted
            assert not words or told(sources, words, hash_domain=domain) == wanted
            matched += bool(wanted)
            several += len(wanted) > 1
    assert (matched > 200, several > 100) == (linked, linked)
    assert {state.replica for state in Index(sources).replicas(0.0)} == {*engines}


class Restarting:
    """A worker with its checkpoints, and an index that begins from them whenever a test says so."""

    def __init__(self) -> None:
        self.agent = PartitionState(0, WORKER, shards=1)
        self.saved: dict[bytes, bytes | None] = {}
        self.recount = SourceRecount("r0", 0, WORKER)
        self.log: list[EventsRecord] = []
        self.start()

    def start(self) -> None:
        self.sources = Sources()
        self.partition = IndexedPartition(0, WORKER, self.sources)
        self.partition.load({key: value for key, value in self.saved.items() if value is not None})
        for offset in range(self.partition.next_offset, len(self.log)):
            self.partition.apply(offset, self.log[offset])
        self.partition.settle()

    def checkpoint(self) -> None:
        self.saved.update(self.agent.cut(0.0).checkpoints)

    def publish(self, *events: Stored | Removed) -> None:
        offset = len(self.log)
        opened = [] if offset else [Batch(None, START, START, [Opened(0, complete=True)])]
        batch = Batch(offset, START + offset, START + offset, [*events], len(events))
        self.log.append(EventsRecord("r0", "m", "m/content/default", 0, 1, [*opened, batch]))
        for each in (self.agent, self.partition, self.recount):
            each.apply(offset, self.log[-1])
        self.partition.settle()

    def holds(self, content: int) -> bool:
        """Return what the index says, which is what the recount says."""
        found = bool(told(self.sources, [content]))
        assert found == (content in held(self.recount, "gpu"))
        return found


def first(block: int, link: int, size: int = 16) -> Stored:
    """Return the store of a block that begins a prompt."""
    return Stored(pack([block]), size, size, links=pack([link]))


def test_a_content_is_held_as_long_as_any_block_has_it_whenever_the_index_starts() -> None:
    one = Restarting()
    one.publish(first(1, 9), first(2, 9), first(3, 9))
    content = follow(0, 9)
    one.checkpoint()
    one.start()
    assert one.holds(content)
    one.publish(Removed(pack([1])))
    assert one.holds(content)
    one.checkpoint()
    one.start()
    assert one.holds(content)
    one.publish(Removed(pack([2])))
    assert one.holds(content)
    one.publish(Removed(pack([3])))
    assert not one.holds(content)


@pytest.mark.parametrize("sizes", [[16], [16, 5]])
def test_contents_of_several_blocks_at_every_moment(sizes: list[int]) -> None:
    """Six blocks of three contents come and leave; only attackers make one content of two sizes."""
    rng = random.Random(str(sizes))
    one = Restarting()
    contents = {link: follow(0, link) for link in (7, 8, 9)}
    seen = {True: 0, False: 0}
    starts = 0
    for _ in range(400):
        block = rng.randrange(6)
        came = rng.random() < 0.35
        one.publish(first(block, 7 + block % 3, rng.choice(sizes)) if came else Removed(pack([block])))
        if rng.random() < 0.3:
            one.checkpoint()
        if rng.random() < 0.2:
            one.start()
            starts += 1
        for content in contents.values():
            seen[one.holds(content)] += 1
    assert min(seen.values()) > 200
    assert starts > 40


def test_a_start_looks_at_no_block_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at = 0

    def counted(*arguments: Any) -> int:
        nonlocal looked_at
        slots = held_by(*arguments)
        looked_at += slots
        return slots

    monkeypatch.setattr(holdings, "held_by", counted)
    state, sources = PartitionState(0, WORKER, shards=1), Sources()
    for number in range(20):
        blocks = range(100 * number + 1, 100 * number + 101)
        events = [
            Stored(pack([*blocks]), 16, 1600, group_idx=group, links=pack([*blocks])) for group in (0, 1)
        ]
        batches = [Batch(None, START, START, [Opened(0, complete=True)]), Batch(0, START, START, [*events])]
        state.apply(number, EventsRecord(f"r{number}", "m", "m/content/default", 0, 1, batches))
    partition = IndexedPartition(0, WORKER, sources)
    state.leaves()
    partition.load(dict(state.cut(START).checkpoints))
    partition.settle()
    assert sources.holdings.blocks == 20 * 2 * 2 * 100
    assert looked_at == 0
