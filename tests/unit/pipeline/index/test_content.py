"""Questions by content hash: all replicas that hold a prompt, whatever their engine, seed and algorithm."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest

from connectors.normalise.forwarding import Forwarding
from connectors.normalise.links import Linker
from connectors.normalise.normaliser import Normaliser
from pipeline.index.holdings import holdings
from pipeline.index.holdings.counting import held_by
from pipeline.simulator.engine.scheduler import Engine
from pipeline.simulator.engine.settings import EngineSettings
from pipeline.simulator.traffic.workload import WorkloadSettings, arrivals
from pipeline.simulator.wire.encoding import encoded_batch
from pipeline.simulator.wire.eras import ERAS
from pipeline.verify.replica.copies import Copies
from pipeline.verify.replica.source import SourceRecount
from schemas.events import Closed, Removed, Stored
from schemas.hashing.content import Content, follow
from schemas.settings import Worker, hash_domain
from tests.support.following_index import FollowingIndex
from tests.support.inputs.event_records import notice, opened, record, sent
from tests.support.inputs.source_walks import pack
from tests.support.plain_runs import plain_runs
from tests.support.replica_agent import ReplicaAgent

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


def told(following: FollowingIndex, words: list[int], **more: Any) -> dict[str, tuple[int, int]]:
    return {name: (match.gpu, match.cpu) for name, match in following.ask(*words, **more).items()}


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
    following, agent = FollowingIndex(WORKER), ReplicaAgent(WORKER)
    rng = random.Random(5)
    coming = arrivals(WorkloadSettings(3, 4.0, 5, 160, max_prompt_tokens=900))
    due, request = next(coming)
    prompts: list[tuple[int, ...]] = []
    matched = several = 0
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
            begin = [] if seqs[name] else [opened(at)]
            said = record(*begin, batch, replica=name, domain=domain, life=lives[name])
            seqs[name] += 1
            offset = len(agent.log)
            run = plain_runs([msgspec.msgpack.encode(said)], WORKER, first=offset)[0]
            recounts[name].apply(offset, said)
            following.partition.apply(offset, said if run is None else run)
            agent.apply(said if run is None else run)
        if step == STEPS // 2:  # an engine restarts
            said = record(notice(at, Closed("restarted")), replica="r1", domain=domain, life=lives["r1"])
            for each in (following.partition, recounts["r1"]):
                each.apply(len(agent.log), said)
            agent.apply(said)
            lives["r1"], seqs["r1"] = 2, 0
            engines["r1"] = Engine(EngineSettings(200, cpu_blocks=200, hash_seed="seed of another life"))
        if step % 60 == 0:  # the index is killed, and begins from the workers' checkpoint
            agent.state.leaves()
            agent.cut(at)
            following = FollowingIndex(WORKER, agent.latest)
        for prompt in rng.sample(prompts, min(len(prompts), 3)):
            words = Content(16, KEY).words(prompt)
            wanted = expected(recounts, words)
            assert told(following, words) == wanted
            assert not words or told(following, words, hash_domain=domain) == wanted
            matched += bool(wanted)
            several += len(wanted) > 1
    assert (matched > 200, several > 100) == (linked, linked)
    assert {state.replica for state in following.index.replicas(0.0)} == {*engines}


class Restarting:
    """A worker with its checkpoints, and an index that begins from them whenever a test says so."""

    def __init__(self) -> None:
        self.agent = ReplicaAgent(WORKER)
        self.recount = SourceRecount("r", 0, WORKER)
        self.start()

    def start(self) -> None:
        self.following = FollowingIndex(WORKER, self.agent.latest)
        for offset in range(self.following.partition.next_offset, len(self.agent.log)):
            self.following.partition.apply(offset, self.agent.log[offset])

    def checkpoint(self) -> None:
        self.agent.cut(0.0)

    def publish(self, *events: Stored | Removed) -> None:
        offset = len(self.agent.log)
        said = sent(offset, START + offset, *events, domain="m/content/default")
        self.agent.apply(said)
        for each in (self.following.partition, self.recount):
            each.apply(offset, said)
        self.following.partition.settle()

    def holds(self, content: int) -> bool:
        """Return what the index says, which is what the recount says."""
        found = bool(told(self.following, [content]))
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
    agent = ReplicaAgent(WORKER)
    for number in range(20):
        blocks = range(100 * number + 1, 100 * number + 101)
        events = [
            Stored(pack([*blocks]), 16, 1600, group_idx=group, links=pack([*blocks])) for group in (0, 1)
        ]
        agent.apply(sent(0, START, *events, replica=f"r{number}", domain="m/content/default"))
    agent.moved(START)
    following = FollowingIndex(WORKER, agent.latest)
    following.partition.settle()
    assert following.sources.holdings.blocks == 20 * 2 * 2 * 100
    assert looked_at == 0
