"""Engines that know one copy of each block: what they announce again is gone when removed once."""

from __future__ import annotations

import pytest

from schemas.events import Removed, Stored
from tests.support.following_index import FollowingIndex
from tests.support.inputs.event_records import batch, opened, record
from tests.support.inputs.packed import packed

NOW = 1_800_000_000.0


@pytest.mark.parametrize(("one_copy", "matched"), [(True, 0), (False, 16)])
def test_announced_twice_and_removed_once(one_copy: bool, matched: int) -> None:
    following, twice = FollowingIndex(), Stored(packed(1, 2), 16, 32)
    events = [twice, twice, Stored(packed(7), 16, 16), Removed(packed(1))]
    batches = [batch(seq, NOW, event) for seq, event in enumerate(events)]
    following.partition.apply(0, record(opened(NOW), *batches, engine="atom", one_copy=one_copy))
    match = following.ask(1, at=NOW).get("r")
    assert (match.gpu if match else 0) == matched
    assert following.ask(7, at=NOW)["r"].gpu == 16
