"""Two overlapping granularities against the truth of a simulated hybrid engine."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import Any

import pytest

from connectors.normalise.normaliser import Normaliser
from pipeline.residency.granularity.two_sizes import GranularPool
from pipeline.simulator.engine.scheduler import Engine
from pipeline.simulator.engine.settings import HYBRID_GROUPS, EngineSettings
from pipeline.simulator.engine.truth import engine_truth
from pipeline.simulator.traffic.workload import WorkloadSettings, arrivals
from pipeline.simulator.wire.encoding import encoded_batch
from pipeline.simulator.wire.eras import ERAS
from schemas.events import Cleared, Event, Removed, Stored
from schemas.residency import CLEARED, FILLED
from schemas.rows import FlowRow
from schemas.settings import Worker
from tests.support.inputs.event_records import opened, record, sent
from tests.support.inputs.packed import packed
from tests.support.replica_agent import ReplicaAgent, changes_of, rows_of

START = 1_800_000_000.0
ERA = ERAS["vllm-0.24"]
ATTENTION, MAMBA = 0, 1
TRAFFIC = WorkloadSettings(
    seed=11,
    rate=2.0,
    system_prompts=3,
    system_prompt_tokens=300,
    mean_user_tokens=60,
    mean_output_tokens=30,
    max_prompt_tokens=1200,
    canned_share=0.2,
)
HYBRID = EngineSettings(
    num_blocks=60, block_size=128, groups=HYBRID_GROUPS, fine_block_size=16, step_tokens=300, decode_tokens=4
)


class Followed(ReplicaAgent):
    """A partition state that is fed the batches of one engine."""

    def __init__(self, settings: Worker | None = None) -> None:
        super().__init__(settings, shards=4)
        self.seq = 0

    def batch(self, *events: Event, at: float = START) -> None:
        self.apply(sent(self.seq, at, *events, engine="vllm", wire_era="map"))
        self.seq += 1

    def sizes(self, group_idx: int) -> dict[int, tuple[int, int, int, int]]:
        """Return block size -> (entries, blocks, tokens, covered) of one group."""
        return {
            row.block_size: (row.entries, row.blocks, row.tokens, row.covered_blocks)
            for row in self.source().occupancy()
            if row.group_idx == group_idx
        }


@pytest.mark.parametrize("seed", range(6))
def test_fine_and_coarse_blocks_equal_the_engine_at_every_batch(seed: int) -> None:
    engine = Engine(HYBRID)
    normaliser = Normaliser(max_frame_bytes=1 << 20)
    followed = Followed()
    queue = [request for _, request in islice(arrivals(replace(TRAFFIC, seed=seed)), 60)]
    split = False
    seq = covered_seen = uncovered_seen = 0
    while queue or engine.busy:
        for _ in range(min(4, len(queue)) if not engine.busy else 0):
            engine.submit(queue.pop())
        events = engine.step()
        if not events:
            continue
        at = START + seq * 0.05
        batch = normaliser.normalise(encoded_batch(ERA, at, events), seq=seq, received_at=at)
        followed.batch(*batch.events, at=batch.ts)
        seq += 1
        if seq % 37 == 0:
            followed.moved(START)
        truth = engine_truth(engine, ERA.hash_form, seq)
        coarse = dict.fromkeys((ATTENTION, MAMBA), 0)
        for group, _, copies in truth["resident"]["gpu"]:
            coarse[group] += copies
        fine_alone = sum(1 for _, _, covers in truth["fine"] if not covers)
        fine_covered = len(truth["fine"]) - fine_alone
        split = split or isinstance(followed.source().pools["gpu", ATTENTION], GranularPool)
        if not split:
            assert coarse[ATTENTION] == 0, "the first coarse block shows the second granularity"
            continue
        sizes = followed.sizes(ATTENTION)
        assert sizes[HYBRID.block_size][0] == coarse[ATTENTION]
        assert sizes[16][1] == fine_alone
        assert sizes[16][3] == fine_covered
        assert sizes[16][2] == fine_alone * 16
        if coarse[MAMBA]:
            assert followed.sizes(MAMBA)[HYBRID.block_size][0] == coarse[MAMBA]
        covered_seen = max(covered_seen, fine_covered)
        uncovered_seen = max(uncovered_seen, fine_alone)
        if not engine.busy and seq % 60 == 0:
            assert engine.reset_prefix_cache()
    assert covered_seen > 50
    assert uncovered_seen > 10
    assert engine.counters.evicted_blocks > 50


def fine(first: int, count: int, parent: int | None = None) -> Stored:
    return Stored(packed(*range(first, first + count)), 64, parent=None if parent is None else packed(parent))


def coarse(*hashes: int, parent: int | None = None) -> Stored:
    return Stored(packed(*hashes), 2176, parent=None if parent is None else packed(parent))


def flow(followed: Followed) -> Any:
    return followed.flow()["gpu", 0]


@pytest.mark.parametrize("fine_first", [False, True])
@pytest.mark.parametrize("one_batch", [False, True])
def test_a_token_counts_once(fine_first: bool, one_batch: bool) -> None:
    followed = Followed()
    events = [coarse(9001, 9002), fine(1, 70)]
    if fine_first:
        events.reverse()
    for part in [events] if one_batch else [[event] for event in events]:
        followed.batch(*part)
    # 70 fine blocks of 64: 68 under two coarse blocks of 2,176, two beyond.
    assert followed.sizes(0) == {2176: (2, 2, 4352, 0), 64: (2, 2, 128, 68)}
    assert flow(followed).stored_tokens == 70 * 64
    followed.batch(Removed(packed(9001)))
    assert followed.sizes(0) == {2176: (1, 1, 2176, 0), 64: (2, 2, 128, 34)}
    assert flow(followed).evicted_tokens == 2176


@pytest.mark.parametrize("members", [1, 2, 5])
def test_a_chain_that_bites_its_own_tail_is_none(members: int) -> None:
    """No engine makes one, but one that lies may: a block, fine and coarse at once, before itself."""
    followed = Followed()
    followed.batch(fine(1000, 2), coarse(9000, 9001))
    followed.batch(fine(1, members, parent=members), coarse(members))
    alone = 2 + members
    assert followed.sizes(0) == {2176: (3, 3, 6528, 0), 64: (alone, alone, alone * 64, 0)}
    followed.batch(Removed(packed(members)))
    assert followed.sizes(0) == {2176: (2, 2, 4352, 0), 64: (alone, alone, alone * 64, 0)}


def test_short_prompts_are_visible_and_join_the_chain_later() -> None:
    followed = Followed()
    followed.batch(fine(1, 20))
    assert followed.sizes(0) == {64: (20, 20, 1280, 0)}
    followed.batch(coarse(9001), fine(21, 16, parent=20))
    assert followed.sizes(0) == {2176: (1, 1, 2176, 0), 64: (2, 2, 128, 34)}
    assert flow(followed).stored_tokens == 36 * 64


def test_fine_blocks_leave_with_clear_and_restart_and_by_age() -> None:
    followed = Followed(Worker(fine_block_age_seconds=30))
    followed.batch(coarse(9001), fine(1, 40))
    followed.batch(Cleared())
    assert followed.sizes(0) == {2176: (0, 0, 0, 0), 64: (0, 0, 0, 0)}
    assert flow(followed).cleared_blocks == 1 + 6
    followed.batch(coarse(9001), fine(1, 40), at=START + 1)
    followed.batch(fine(101, 3), at=START + 25)
    followed.batch(at=START + 45)
    assert followed.sizes(0) == {2176: (1, 1, 2176, 0), 64: (3, 3, 192, 34)}
    assert flow(followed).expired_blocks == 6
    followed.apply(record(opened(START + 46), life=2))
    assert followed.sizes(0) == {2176: (0, 0, 0, 0), 64: (0, 0, 0, 0)}


def test_partial_tail_blocks_are_counted_like_any_other() -> None:
    """vLLM 0.24 announces and removes partial blocks one by one: reference counts stay exact."""
    followed = Followed()
    partial = Stored(packed(7), 16, parent=packed(6))
    followed.batch(Stored(packed(1, 2, 3), 128), partial)
    followed.batch(Stored(packed(8), 16))
    assert followed.sizes(0) == {128: (3, 3, 384, 0), 16: (2, 2, 32, 0)}
    followed.batch(Removed(packed(7, 1)))
    assert followed.sizes(0) == {128: (2, 2, 256, 0), 16: (1, 1, 16, 0)}
    assert flow(followed).unknown_removed_blocks == 0


def test_changes_of_a_hybrid_engine_survive_encoding() -> None:
    followed = Followed()
    followed.batch(coarse(9001), fine(1, 34))
    kinds = [kind for part in changes_of(followed.cut(START)) for kind in part.kinds]
    assert sorted(kinds) == [0] * 35 + [4] * 34


def test_tokens_counted_in_an_earlier_window_are_taken_off_later() -> None:
    followed = Followed()
    followed.batch(fine(1, 34), at=START)
    followed.batch(coarse(9001), at=START + 1)
    assert flow(followed).stored_tokens == 2176
    followed = Followed()
    followed.batch(coarse(9001), at=START)
    followed.batch(fine(1, 33), at=START + 12)
    followed.batch(fine(34, 1, parent=33), at=START + 25)
    followed.batch(fine(101, 40), at=START + 38)
    rows = rows_of(followed.cut(START + 38), FlowRow)
    assert all(row.stored_tokens >= 0 for row in rows)
    assert sum(row.stored_tokens for row in rows) == flow(followed).stored_tokens == (34 + 40) * 64


def test_what_a_group_held_before_it_became_hybrid_counts_against_the_limit_at_once() -> None:
    """Whether something was saved in between, after which the worker knows the number exactly, or not."""
    settings = Worker(max_itemised_blocks=100)
    left_out = []
    for saved in (False, True):
        followed = Followed(settings)
        followed.batch(Stored(packed(*range(1, 151)), 128))
        followed.batch(Stored(packed(1_001, 1_002), 16))
        if saved:
            followed.moved(START)
        followed.batch(Stored(packed(1_003), 16))
        left_out.append(dict(followed.state.take_left_out()))
        assert followed.sizes(0)[128][0] == 150
    assert left_out[0] == left_out[1] != {}


def test_a_store_only_group_stays_so_to_the_fleet_when_it_becomes_hybrid() -> None:
    followed = Followed(Worker(fine_block_age_seconds=20.0))
    kinds = []
    stored = [Stored(packed(1, 2), 128, medium="storage"), Stored(packed(3, 4), 16, medium="storage")]
    for number, event in enumerate([*stored, Cleared("storage")]):
        followed.batch(event, at=START + number)
        kinds += [(part.store_only, *part.kinds) for part in changes_of(followed.cut(START + number))]
    assert set(kinds) == {(True, FILLED, FILLED), (True, *[CLEARED] * 4)}
