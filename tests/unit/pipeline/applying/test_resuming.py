"""Where a state goes on: behind its checkpoint, or at what the log still has."""

from __future__ import annotations

from typing import cast

import pytest

from pipeline.applying.resuming import go_on
from pipeline.errors import CheckpointAhead
from pipeline.residency.partition import PartitionState
from schemas.settings import Worker


class Noted(PartitionState):
    """Notes where it goes on behind what was removed."""

    removed_before = -1

    def skip_removed(self, beginning: int) -> None:
        super().skip_removed(beginning)
        self.removed_before = beginning


def gone_on(
    saved: int, *, beginning: int = 0, end: int = 100, fresh: bool = False, markers: int = 0
) -> tuple[Noted, int]:
    """The state that had a checkpoint before `saved`, and how many records count as lost."""
    state = Noted(0, Worker(), shards=1)
    state.next_offset = saved
    lost: list[int] = []
    go_on(state, "t", 3, fresh=fresh, beginning=beginning, end=end, lost=lost.append, markers=markers)
    return state, sum(lost)


@pytest.mark.parametrize(
    ("saved", "beginning", "fresh", "markers", "next_offset", "lost"),
    [
        (7, 0, False, 0, 7, 0),
        (7, 7, False, 0, 7, 0),
        (7, 8, False, 0, 8, 1),
        (7, 8, False, 1, 8, 0),  # the marker of the transaction that wrote the checkpoint
        (7, 9, False, 1, 9, 2),
        (0, 9, True, 0, 9, 0),  # it never knew what was removed
    ],
)
def test_it_begins_at_the_oldest_record_there_is(
    saved: int, beginning: int, fresh: bool, markers: int, next_offset: int, lost: int
) -> None:
    state, counted = gone_on(saved, beginning=beginning, fresh=fresh, markers=markers)
    assert (state.next_offset, counted) == (next_offset, lost)
    assert state.removed_before == (beginning if lost else -1)


def test_a_checkpoint_of_more_than_the_log_has_is_refused() -> None:
    gone_on(100)
    with pytest.raises(CheckpointAhead) as raised:
        gone_on(101)
    assert cast(CheckpointAhead, raised.value).saved == 101
