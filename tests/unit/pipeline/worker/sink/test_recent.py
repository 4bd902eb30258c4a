"""What a worker without ClickHouse says of the last five minutes, by hand."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from pipeline.generated.examples.figures import figures_examples
from pipeline.worker.fleet_figures import fleet_figures
from pipeline.worker.sink.recent import RecentRows, sums
from schemas.figures import FIGURES
from schemas.fleet_rows import FillsRow
from schemas.rows import FlowRow, OccupancyRow, StreamHealthRow

NOON = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)


def row(kind: Any, at: float, **columns: Any) -> Any:
    """A row of a window `at` seconds after noon: of the example, but for `columns`."""
    example = next(one for one in figures_examples().values() if type(one) is FIGURES[kind])
    values = {name: getattr(example, name) for name in kind.__struct_fields__}
    return kind(**values | {"window": NOON + timedelta(seconds=at)} | columns)


def fills(at: float, **columns: Any) -> FillsRow:
    nothing = {name: 0 for name in FillsRow.__struct_fields__ if name.endswith(("_tokens", "_blocks"))}
    return row(FillsRow, at, **nothing | columns)


def test_rates_are_those_of_whole_minutes_and_of_the_newest_version() -> None:
    agent = RecentRows()
    agent.add([
        row(StreamHealthRow, 410, trust="partial", version=9),
        # 380 s after noon, cut to the minute: the range is from 60 to 360.
        fills(50, cold_tokens=7000),
        fills(60, cold_tokens=300, version=1),
        fills(60, cold_tokens=600, version=2),
        fills(60, cold_tokens=300, version=1),
        fills(60, cold_tokens=100, shard=1),
        fills(350, peer_tokens=30, reannounced_tokens=5),
        fills(360, cold_tokens=9000),
    ])  # fmt: skip
    found = sums([agent])
    assert found is not None
    assert found.end == NOON + timedelta(seconds=360)
    assert {labels: tokens for labels, tokens in found.filled.items() if tokens} == {
        ("qwen3-32b", "cold"): 700,
        ("qwen3-32b", "peer"): 30,
    }
    assert found.newest == {"qwen3-32b": NOON + timedelta(seconds=410)}


def test_of_several_groups_the_one_that_filled_most_counts() -> None:
    agent = RecentRows()
    agent.add([
        row(StreamHealthRow, 400),
        fills(100, filled_tokens=64, cold_tokens=64, group_idx=1),
        fills(100, filled_tokens=96, cold_tokens=96, group_idx=2),
        fills(100, filled_tokens=48, cold_tokens=48, group_idx=2, shard=1),
    ])  # fmt: skip
    found = sums([agent])
    assert found is not None
    assert found.filled["qwen3-32b", "cold"] == 144


def test_gauges_are_those_of_the_last_window_of_each_pool() -> None:
    agent, other = RecentRows(), RecentRows()
    agent.add([
        row(OccupancyRow, 100, tokens=1600, entries=110, capacity_blocks=200),
        row(OccupancyRow, 350, tokens=800, entries=60, capacity_blocks=200),
        row(OccupancyRow, 350, medium="cpu", tokens=320, entries=20, capacity_blocks=0),
        # Smaller blocks of the group lie in the larger ones.
        row(OccupancyRow, 350, block_size=4, tokens=16, entries=4, capacity_blocks=0),
        row(OccupancyRow, 350, replica="vllm-1", tokens=160, entries=10, capacity_blocks=0),
        row(StreamHealthRow, 340, trust="complete"),
        row(StreamHealthRow, 350, trust="degraded"),
        row(FlowRow, 350),
    ])  # fmt: skip
    other.add([row(StreamHealthRow, 410, replica="vllm-1"), row(StreamHealthRow, 350, replica="vllm-1")])
    found = sums([agent, other])
    assert found is not None
    assert found.cached == {("qwen3-32b", "gpu"): 976, ("qwen3-32b", "cpu"): 320}
    assert found.streams == {("qwen3-32b", "degraded"): 1, ("qwen3-32b", "complete"): 1}
    assert (found.gpu_blocks, found.gpu_capacity) == ({"qwen3-32b": 60}, {"qwen3-32b": 200})
    agent.clear()
    left = sums([agent, other])
    assert left is not None
    assert left.streams == {("qwen3-32b", "complete"): 1}, "others own what was given up"


def test_blocks_of_no_size_hold_as_many_tokens_as_those_of_their_group_on_the_gpu() -> None:
    agent = RecentRows()
    on_cpu = {"medium": "cpu", "block_size": 0, "tokens": 0, "entries": 20, "capacity_blocks": 0}
    agent.add([
        row(OccupancyRow, 350, tokens=800, entries=50, capacity_blocks=200),
        row(OccupancyRow, 350, block_size=4, tokens=16, entries=4, capacity_blocks=0),
        row(OccupancyRow, 350, blocks=20, **on_cpu),
        # Of this group nothing on the GPU tells a size.
        row(OccupancyRow, 350, replica="vllm-1", tokens=800, entries=50, capacity_blocks=200),
        row(OccupancyRow, 350, replica="vllm-1", blocks=20, group_idx=3, **on_cpu),
        row(StreamHealthRow, 410),
    ])  # fmt: skip
    found = sums([agent])
    assert found is not None
    assert found.cached == {("qwen3-32b", "gpu"): 1616, ("qwen3-32b", "cpu"): 320}


def test_old_windows_are_let_go() -> None:
    agent = RecentRows()
    for window in range(0, 4000, 10):
        agent.add([fills(window, cold_tokens=1), row(StreamHealthRow, window)])
    assert len([*agent.between(NOON, NOON + timedelta(days=1))]) <= 2 * 40


def test_the_page_has_the_names_of_that_of_serve() -> None:
    assert generate_latest(fleet_figures([RecentRows()])) == b""
    agent = RecentRows()
    agent.add([row(StreamHealthRow, 410), row(OccupancyRow, 350), fills(100, cold_tokens=600)])
    samples = {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(generate_latest(fleet_figures([agent])).decode())
        for sample in family.samples
    }
    assert samples["kvlens_fleet_filled_tokens_per_second", "cold", "qwen3-32b"] == 2.0
    assert samples["kvlens_fleet_cached_tokens", "gpu", "qwen3-32b"] == 48
    assert samples["kvlens_fleet_gpu_cache_capacity_blocks", "qwen3-32b"] == 27_000
    assert samples["kvlens_fleet_range_end_timestamp_seconds",] == (NOON + timedelta(seconds=360)).timestamp()
    assert not [name for name, *_ in samples if "hit_ratio" in name or "cost" in name]
