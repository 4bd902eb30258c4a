"""How far tiers go on: which groups have a say on each, and what their attention needs there."""

from __future__ import annotations

from typing import Any

import pytest

from pipeline.verify.replica.source import SourceRecount
from schemas.events import Event, Removed, Stored
from schemas.settings import Worker
from tests.support.following_index import FollowingIndex
from tests.support.holders import UNTOLD, WHOLE, Held, held_by_each, of_rank
from tests.support.inputs.event_records import batch, opened, record
from tests.support.inputs.source_walks import pack

CHAIN = [*range(100, 116)]
FULL = "full_attention"
BOTH_FULL = {0: WHOLE, 1: WHOLE}


def blocks(begin: int, end: int) -> bytes:
    return pack(CHAIN[begin:end])


def held(
    *events: Event,
    windows: dict[int, int] | None = None,
    chain: list[int] | None = None,
    engine: str = "sglang",
) -> Held | None:
    """Return what the index says of a source with these events, which is what the recount says."""
    following, recount = FollowingIndex(), SourceRecount("r", 0, Worker())
    said = record(opened(1.0), batch(0, 2.0, *events), engine=engine)
    for each in (following.partition, recount):
        each.apply(0, said)
    asked = chain or CHAIN
    told = following.ask(*asked, at=2.0).get("r")
    found = told and of_rank(told.ranks["0"])
    assert found == held_by_each([recount], asked, {"r": windows or {}}).get(("r", 0))
    return found


def on_gpu(*groups: int, end: int = 4, size: int = 16, kind: str = FULL, **more: Any) -> list[Event]:
    return [Stored(blocks(0, end), size, group_idx=group, spec_kind=kind, **more) for group in groups]


def tokens(*ends: int, upper_bound: bool = False, more: int = 0) -> Held:
    """Return the answer that goes so many blocks far on the GPU, on the CPU and below, and `more` perhaps."""
    gpu, cpu, disk = ends
    return Held(16 * gpu, 16 * cpu, 16 * disk, disk, "complete", upper_bound, 16 * more, more > 0)


@pytest.mark.parametrize("size", [16, 0])
@pytest.mark.parametrize(("left", "cpu"), [((9, 10), 4), ((0, 0), 4), ((4, 7), 7)])
def test_a_group_whose_blocks_left_the_cpu_has_a_say(size: int, left: tuple[int, int], cpu: int) -> None:
    """What it still holds of the prompt, nothing or something, makes no difference to that."""
    gone = [one for at, one in enumerate(CHAIN) if 4 <= at < 10 and not left[0] <= at < left[1]]
    assert held(
        *on_gpu(0, 1),
        Stored(blocks(4, 10), size, medium="cpu"),
        Stored(blocks(4, 10), size, medium="cpu", group_idx=1),
        Removed(pack(gone), "cpu", group_idx=1),
        windows=BOTH_FULL,
    ) == tokens(4, cpu, cpu)


def test_groups_without_a_say_on_the_cpu() -> None:
    """Those that were never there, those that are of another block size, also where only the GPU says so."""
    named = {0: WHOLE, 1: WHOLE, 2: WHOLE}
    never = [*on_gpu(0, 1), Stored(blocks(4, 10), 16, medium="cpu")]
    assert held(*never, windows=named) == tokens(4, 10, 10)
    contradiction = Removed(pack([5]), "cpu", group_idx=1)
    expected = tokens(4, 10, 10)._replace(trust="degraded")
    assert held(*never, contradiction, windows=named) == expected
    other = Stored(pack([7]), 64, group_idx=2, spec_kind=FULL)
    assert held(*never, other, Stored(pack([7]), 64, medium="cpu", group_idx=2), windows=named) == tokens(
        4, 10, 10
    )
    assert held(*never, other, Stored(pack([7]), 0, medium="cpu", group_idx=2), windows=named) == tokens(
        4, 10, 10
    )


def test_where_nobody_says_how_large_blocks_are() -> None:
    """A group has a say if it holds something of the prompt."""
    alone = [Stored(blocks(0, 4), 0, medium="cpu"), Stored(pack([7]), 0, medium="cpu", group_idx=1)]
    assert held(*alone) == Held(0, 0, 0, 4, "complete", upper_bound=False)
    both = Stored(blocks(2, 3), 0, medium="cpu", group_idx=1)
    assert held(*alone, both) == Held(0, 0, 0, 0, "complete", upper_bound=False, lower_bound=True)


@pytest.mark.parametrize(("window", "kind", "left", "cpu", "more"), [
    (33, "sliding_window", (8, 10), 10, 0),
    (33, "sliding_window", (9, 10), 4, 0),
    (33, "sliding_window", (5, 8), 8, 0),
    (33, "sliding_window", (4, 5), 5, 0),
    (1, "sliding_window", (9, 10), 10, 0),
    (-1, "mamba", (9, 10), 10, 0),
    (-1, "mamba", (7, 8), 8, 0),
    (-1, "mamba", (0, 0), 4, 0),
    (0, "full_attention", (4, 7), 7, 0),
    (0, "mla_attention", (4, 7), 7, 0),
    (0, "sink_full_attention", (9, 10), 4, 0),
    (33, "sliding_window_mla", (8, 10), 10, 0),
    (UNTOLD, "sliding_window", (9, 10), 4, 6),
    (UNTOLD, "chunked_local_attention", (9, 10), 4, 6),
    (UNTOLD, "attention of a kind that nobody knows", (9, 10), 4, 6),
])  # fmt: skip
@pytest.mark.parametrize("said", [True, False])
@pytest.mark.parametrize("media", [("cpu",), ("disk",), ("disk", "nvme")])
def test_on_lower_tiers_groups_need_what_their_attention_looks_at(
    window: int, kind: str, left: tuple[int, int], cpu: int, more: int, said: bool, media: tuple[str, ...]
) -> None:
    """Where the lower tier does not say what kind a group is, it is what the GPU says."""
    looks_back = window if window > 0 else None
    below = {"spec_kind": kind, "sliding_window": looks_back} if said else {}
    kept = CHAIN[slice(*left)]
    found = held(
        *on_gpu(0),
        *on_gpu(1, kind=kind, sliding_window=looks_back),
        Stored(blocks(4, 10), 16, medium=media[0]),
        Stored(blocks(4, 10), 16, medium=media[0], group_idx=1, **below),  # type: ignore[arg-type]
        Removed(blocks(4, 10), media[0], group_idx=1),
        Stored(pack(kept[::2]), 16, medium=media[0], group_idx=1),
        Stored(pack(kept[1::2]), 16, medium=media[-1], group_idx=1),
        windows={0: WHOLE, 1: window},
    )
    assert found == tokens(4, cpu if media == ("cpu",) else 4, cpu, more=more)


def test_a_window_on_a_lower_tier_begins_with_what_the_tier_above_has() -> None:
    """A window of four blocks; the end of the GPU's part is in it."""
    sliding: dict[str, Any] = {"kind": "sliding_window", "sliding_window": 65}
    found = held(
        *on_gpu(0),
        *on_gpu(1, **sliding),
        Stored(blocks(4, 6), 16, medium="cpu"),
        Stored(blocks(4, 6), 16, medium="cpu", group_idx=1),
        Stored(blocks(6, 9), 16, medium="disk"),
        Stored(blocks(6, 9), 16, medium="disk", group_idx=1),
        windows={0: WHOLE, 1: 65},
    )
    assert found == tokens(4, 6, 9)


def test_two_granularities_below_the_gpu_go_on_without_the_first_block() -> None:
    """As fine blocks, on the CPU and on disk."""
    fine = [Stored(blocks(4, 8), 16, medium="cpu"), Stored(pack([7]), 64, medium="cpu")]
    assert held(*on_gpu(0), *fine) == tokens(4, 8, 8)
    fine += [Stored(blocks(8, 12), 16, medium="disk"), Stored(pack([7]), 64, medium="disk")]
    assert held(*on_gpu(0), *fine) == tokens(4, 8, 12)


def test_two_granularities_on_the_gpu_tell_the_size_of_what_is_below() -> None:
    """The GPU lacks the first block only; the CPU does not say sizes."""
    two_sizes = [Stored(blocks(1, 4), 16), Stored(pack([7]), 64)]
    found = held(*two_sizes, Stored(blocks(0, 4), 0, medium="cpu"))
    assert found == tokens(0, 4, 4)


@pytest.mark.parametrize(("begin", "end", "unsure"), [(8, 9, False), (3, 4, False), (6, 7, True)])
def test_an_upper_bound_is_one_of_what_counts(begin: int, end: int, unsure: bool) -> None:
    """Blocks leave `fs` unsaid; of the match 4 to 7 are below the CPU."""
    expected = tokens(4, 4, 7, upper_bound=unsure)
    assert held(
        *on_gpu(0),
        Stored(blocks(4, 7), 16, medium="disk"),
        Stored(blocks(begin, end), 16, medium="fs"),
        Stored(blocks(8, 9), 16, medium="disk"),
        Removed(blocks(8, 9), "disk"),
    ) == expected._replace(trust="partial")  # files outlive engines


def test_a_group_that_does_not_say_how_far_it_looks_back_is_no_empty_answer() -> None:
    """Chunked local attention: what is out of its chunk leaves, and vLLM does not say how long a chunk is."""
    full, local = on_gpu(0, end=8), on_gpu(1, end=8, kind="chunked_local_attention")
    windows = {0: WHOLE, 1: UNTOLD}
    assert held(*full, *local, windows=windows) == tokens(8, 8, 8)
    left = Removed(blocks(0, 4), group_idx=1)
    assert held(*full, *local, left, windows=windows) == tokens(0, 0, 0, more=8)
    assert held(*local, Removed(blocks(0, 4), group_idx=1), windows=windows) == tokens(0, 0, 0, more=8)
    assert held(*local, Removed(blocks(0, 8), group_idx=1), windows=windows) is None


def test_several_groups_that_nobody_names_may_each_need_less_than_all() -> None:
    """As engines announce them that name no kinds; one alone needs all."""
    alone = Stored(blocks(0, 4), 16)
    assert held(alone, Removed(blocks(0, 1))) is None
    other = Stored(blocks(2, 4), 16, group_idx=1)
    assert held(alone, other) == tokens(0, 0, 0, more=4)


@pytest.mark.parametrize("engine", ["vllm", "", "sglang"])
def test_a_part_of_a_chunk_on_the_cpu_is_an_upper_bound(engine: str) -> None:
    """vLLM names all blocks of a chunk in one event, and loads whole chunks; others announce as they like."""
    chunk = Stored(blocks(0, 4), 16, medium="cpu")
    asked = [*CHAIN[:3], 7]
    unsure = engine != "sglang"
    assert held(chunk, chain=asked, engine=engine) == tokens(0, 3, 3, upper_bound=unsure)
    one_by_one = [Stored(pack([block]), 16, medium="cpu") for block in CHAIN[:4]]
    assert held(*one_by_one, chain=asked, engine=engine) == tokens(0, 3, 3)
    assert held(*on_gpu(0), chunk, chain=asked, engine=engine) == tokens(3, 3, 3)
