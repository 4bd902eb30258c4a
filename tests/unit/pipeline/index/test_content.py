"""Questions by content hash: all replicas that hold a prompt, whatever their engine, seed and algorithm."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest

from connectors.normalise.links import Linker
from connectors.normalise.normaliser import Normaliser
from pipeline.index.following.partition import IndexedPartition
from pipeline.index.following.sources import Sources
from pipeline.index.index import Index
from pipeline.index.questions.question import Question
from pipeline.residency.intake.plain_runs import plain_runs
from pipeline.residency.partition import PartitionState
from pipeline.simulator.engine.scheduler import Engine, EngineSettings
from pipeline.simulator.traffic.workload import WorkloadSettings, arrivals
from pipeline.simulator.wire.encoding import encoded_batch
from pipeline.simulator.wire.eras import ERAS
from pipeline.verify.replica.copies import Copies
from pipeline.verify.replica.source import SourceRecount
from schemas.events import Batch, Closed, EventsRecord, Opened
from schemas.hashing.content import Content
from schemas.settings import Worker, hash_domain

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
    normalisers = {name: Normaliser(max_frame_bytes=1 << 20, linker=linker) for name in engines}
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
            run = plain_runs([msgspec.msgpack.encode(record)], WORKER)[0]
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
