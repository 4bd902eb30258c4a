"""Which fills decoding completed, as far as the stream tells (docs/figures.md)."""

from __future__ import annotations

import random
from collections import Counter

import msgspec
import pytest

from connectors.normalise.hashes import pack_hashes
from connectors.order.stream import SourceStream
from connectors.sources import Source
from pipeline.verify.fleet.parsed import columns_of
from pipeline.verify.replica.residency_sums import Changes
from pipeline.verify.replica.source import SourceRecount
from schemas.events import Cleared, Event, Removed, Stored
from schemas.residency import EVICTED, FILLED, GENERATED
from schemas.settings import Connector, Worker
from tests.support.inputs.captures import captured_frames, captured_truth
from tests.support.inputs.event_records import sent
from tests.support.replica_agent import ReplicaAgent, changes_of

START = 1_800_000_000.0


def stored(
    *blocks: int, behind: int | None = None, size: int = 16, medium: str = "gpu", group: int = 0
) -> Stored:
    parent = None if behind is None else pack_hashes([behind])
    return Stored(pack_hashes(blocks), size, size * len(blocks), parent, medium, group_idx=group)


class Engine:
    """What an engine sends, through the agent and through its recount."""

    def __init__(self, name: str = "vllm") -> None:
        self.agent = ReplicaAgent()
        self.recount = SourceRecount("r", 0, Worker())
        self.name = name
        self.told = Changes()

    def sends(self, at: float, *events: Event) -> None:
        """Send a batch so many seconds after the start."""
        seq = len(self.agent.log)
        record = sent(seq, START + at, *events, engine=self.name)
        self.agent.apply(record)
        self.recount.apply(seq, record)

    def kinds(self) -> dict[int, int]:
        """Return the kind of each block's latest change since the last call, and go on as somebody else."""
        found: dict[int, int] = {}
        for pool in changes_of(self.agent.moved(START)):
            columns = columns_of(pool)
            self.told.count_columns(columns)
            found |= zip(columns.hashes, columns.kinds, strict=True)
        return found

    def agrees(self) -> bool:
        """Return whether the recount found the same changes."""
        self.kinds()
        wanted = Changes()
        for sums in self.recount.residency_sums().values():
            assert sums.changes is not None
            wanted.of_kind.update(sums.changes.of_kind)
            wanted.said += sums.changes.said
        return wanted == self.told


@pytest.mark.parametrize(
    ("later", "event", "kind"),
    [
        (0.3, stored(9, behind=3), GENERATED),
        # With other requests between: the block before it came last here.
        (4.0, stored(9, behind=3), GENERATED),
        (4.5, stored(9, behind=3), FILLED),
        (0.3, stored(9, behind=3, size=128), GENERATED),
        (0.3, stored(9, behind=3, size=129), FILLED),
        # A prompt that goes on where another one did.
        (0.3, stored(9, 8, behind=3), FILLED),
        (0.3, stored(9), FILLED),
        (0.3, stored(9, behind=77), FILLED),
        # It came to another medium, or group.
        (0.3, stored(9, behind=3, medium="cpu"), FILLED),
        (0.3, stored(9, behind=3, group=1), FILLED),
    ],
)
def test_a_block_alone_soon_after_the_one_before_it_is_generated(
    later: float, event: Stored, kind: int
) -> None:
    engine = Engine()
    engine.sends(0.0, stored(1, 2, 3, size=event.block_size))
    assert engine.kinds() == {1: FILLED, 2: FILLED, 3: FILLED}
    engine.sends(later, event)
    assert engine.kinds()[9] == kind
    assert engine.agrees()


def test_an_answer_is_generated_from_block_to_block() -> None:
    engine = Engine()
    engine.sends(0.0, stored(1, 2))
    for number in range(3, 9):
        engine.sends(number * 3.5, stored(number, behind=number - 1))
    assert engine.kinds() == {1: FILLED, 2: FILLED, 3: FILLED, **dict.fromkeys(range(4, 9), GENERATED)}
    # A second copy is no fill; what comes again is one by what is known then.
    engine.sends(29.0, stored(8, behind=7), Removed(pack_hashes([8])), Removed(pack_hashes([8])))
    assert engine.kinds() == {8: EVICTED}
    engine.sends(29.5, stored(8, behind=7))
    assert engine.kinds() == {8: FILLED}
    assert engine.agrees()


@pytest.mark.parametrize("name", ["sglang", "trtllm", ""])
def test_engines_that_do_not_tell_are_not_asked(name: str) -> None:
    engine = Engine(name)
    engine.sends(0.0, stored(1, 2))
    engine.sends(0.1, stored(3, behind=2))
    assert engine.kinds() == dict.fromkeys((1, 2, 3), FILLED)
    # What has come counts by what was known of the engine then.
    engine.sends(0.2, stored(4, behind=3))
    engine.name = "vllm"
    engine.sends(0.3, stored(5, behind=4))
    assert engine.kinds() == {4: FILLED, 5: GENERATED}
    assert engine.agrees()


@pytest.mark.parametrize("seed", range(3))
def test_agent_and_recount_find_the_same(seed: int) -> None:
    rng = random.Random(seed)
    engine = Engine()
    at = 0.0
    for _ in range(300):
        at += rng.choice([0.0, 0.1, 0.5, 1.0, 4.0])
        events: list[Event] = []
        for _ in range(rng.randint(1, 4)):
            blocks = rng.sample(range(1, 30), rng.choice([1, 1, 1, 2, 3]))
            if rng.random() < 0.3:
                events.append(Removed(pack_hashes(blocks)))
            elif rng.random() < 0.03:
                events.append(Cleared())
            else:
                events.append(stored(*blocks, behind=rng.choice([None, *range(1, 30)])))
        engine.sends(at, *events)
        if rng.random() < 0.2:
            engine.kinds()
    assert engine.agrees()
    assert engine.told.of_kind[GENERATED] > 10 < engine.told.of_kind[FILLED]


@pytest.mark.parametrize("name", ["vllm-0.33.0-map", "vllm-0.25.1-map-dp1"])
def test_what_is_left_is_what_the_scheduler_computed_for_prompts(name: str) -> None:
    """These schedulers counted each look-up once (tests/captures/README.md), and preempted requests again."""
    stats = captured_truth(name)["prefix_cache_stats"]
    computed = stats["queries"] - stats["hits"] + stats["preempted_queries"] - stats["preempted_hits"]
    # Half a block of each request fills none.
    in_blocks = computed - 7.5 * (stats["requests"] + stats["preempted_requests"])
    agent, now = ReplicaAgent(), START
    source = Source("r", 0, "m", "", "d", "tcp://127.0.0.1:1")
    stream = SourceStream(source, Connector(linger_seconds=0.0), lambda: now)
    for frames in captured_frames(name):
        body = msgspec.msgpack.decode(frames[2])
        now = body["ts"] if isinstance(body, dict) else body[0]
        agent.apply(*stream.feed(frames, now), *stream.flush())
    filled: Counter[int] = Counter()
    for columns in map(columns_of, changes_of(agent.cut(now))):
        for kind, size in zip(columns.kinds, columns.sizes, strict=True):
            filled[kind] += size
    assert filled[FILLED] == pytest.approx(in_blocks, rel=0.002)
    assert filled[GENERATED] > 0.15 * filled[FILLED]
