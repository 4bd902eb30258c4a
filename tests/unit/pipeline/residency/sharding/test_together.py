"""Which blocks came together, against a plain walk that begins with the first block of each run."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from pipeline.residency.changes import CHANGE
from pipeline.residency.sharding.together import ends_of_runs
from schemas.residency import CLEARED, EVICTED, FILLED, GENERATED


class Change(NamedTuple):
    """What decides whether a block came together with the one before."""

    kind: int = FILLED
    time: float = 1.0
    root: int = 7
    depth: int = 1
    adapter: int = 0


def ends(changes: list[Change]) -> list[int]:
    """Return the ends of runs by their places, from 1 on; each block's hash is its place."""
    rows = np.zeros(len(changes), CHANGE)
    for at, change in enumerate(changes):
        rows[at]["hash"] = at + 1
        for name, value in change._asdict().items():
            rows[at][name] = value
    found: list[int] = ends_of_runs(rows).tolist()
    return found


def chain(first: int, last: int, **of_all: Any) -> list[Change]:
    """Return the blocks of a chain from one depth to another."""
    return [Change(depth=depth, **of_all) for depth in range(first, last + 1)]


def walked(changes: list[Change]) -> list[int]:
    """Return the same as `ends`, by runs that are gathered from their first blocks on."""
    runs: list[list[int]] = []
    for at, change in enumerate(changes):
        last = changes[runs[-1][-1]] if runs else None
        next_one = last is not None and (change.root == 0 or change.depth in (last.depth + 1, 65535))
        if next_one and last is not None and FILLED == last.kind == change.kind:
            same = (last.time, last.root, last.adapter) == (change.time, change.root, change.adapter)
            if same:
                runs[-1].append(at)
                continue
        runs.append([at])
    return [run[-1] + 1 if len(run) > 1 else 0 for run in runs for _ in run]


changes = st.builds(
    Change,
    st.sampled_from([FILLED, FILLED, FILLED, GENERATED, EVICTED, CLEARED]),
    st.sampled_from([1.0, 1.0, 2.0]),
    st.sampled_from([0, 7, 7, 8]),
    st.sampled_from([1, 2, 3, 65534, 65535]),
    st.sampled_from([0, 0, 1]),
)


@given(st.lists(changes, max_size=12))
@example([])
def test_runs_are_those_of_a_plain_walk(some: list[Change]) -> None:
    assert ends(some) == walked(some)


def test_a_block_alone_ends_no_run() -> None:
    assert ends([Change()]) == [0]


def test_all_blocks_of_a_run_name_its_last_one() -> None:
    assert ends([*chain(3, 5), *chain(1, 2, root=8)]) == [3, 3, 3, 5, 5]


def test_a_run_ends_where_something_else_begins() -> None:
    first = chain(1, 2)
    for other in ({"time": 2.0}, {"root": 8}, {"adapter": 1}, {"kind": EVICTED}):
        assert ends([*first, *chain(3, 4, **other)])[:2] == [2, 2]
    assert ends([*first, Change(depth=4)]) == [2, 2, 0], "one between was resident"


def test_what_is_of_no_known_chain_belongs_together_side_by_side() -> None:
    assert ends([Change(root=0, depth=0), Change(root=0, depth=0)]) == [2, 2]


def test_depths_are_not_counted_beyond_the_deepest() -> None:
    assert ends([*chain(65534, 65535), Change(depth=65535)]) == [3, 3, 3]


def test_what_leaves_is_of_no_run() -> None:
    assert ends(chain(1, 3, kind=EVICTED)) == [0, 0, 0]
