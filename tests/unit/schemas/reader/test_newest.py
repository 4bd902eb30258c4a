"""Figures kept as their tables have them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec

from kvlens_reader import Newest, decode
from pipeline.generated.examples.figures import AT, figures_examples

replace = msgspec.structs.replace


def figure(name: str, **changes: Any) -> Any:
    return decode("kvlens.figures.v1", msgspec.json.encode(replace(figures_examples()[name], **changes)))


def test_of_each_row_the_newest_version_stays_whatever_comes_late() -> None:
    newest = Newest()
    assert newest.apply(figure("fills", version=5, cold_tokens=80))
    assert not newest.apply(figure("fills", version=4, cold_tokens=16))
    assert not newest.apply(figure("fills", version=5, cold_tokens=80))
    assert newest.apply(figure("fills", version=4, shard=1, cold_tokens=8))
    assert newest.apply(figure("fills", version=4, shard=1, cold_tokens=32)), "of equal versions the later"
    assert newest.apply(figure("occupancy"))
    assert not newest.apply(None)
    assert sorted(row.cold_tokens for row in newest.rows("fills_10s")) == [32, 80]
    assert len(newest.rows("occupancy_10s")) == 1
    newest.forget_before(AT + timedelta(seconds=10))
    assert newest.rows("fills_10s") == []


def test_of_a_request_posted_again_within_the_hour_the_first_counts() -> None:
    newest = Newest()
    first = figures_examples()["choices"]
    later = {"time": first.time + timedelta(minutes=3), "version": first.version - 8}  # type: ignore[attr-defined]
    assert newest.apply(figure("choices"))
    assert not newest.apply(figure("choices", **later))
    assert newest.apply(figure("choices", **later | {"time": AT + timedelta(hours=1)}))
