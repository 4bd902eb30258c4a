"""The worker is killed twice under two captures: the tables end as the engines and an undisturbed run did."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.inputs.captures import captured_frames, captured_truth

pytestmark = pytest.mark.night

NAMES = ("vllm-0.23.0-array-offload-cpu", "vllm-0.33.0-map-hybrid-swa")
PORTIONS = ((0.3, 3.0), (0.8, 12.0), (1.0, 1.0))
"""Up to which share of the captures, in how many seconds; a kill ends the portion's wait for the next.

The second one takes longer than a successor takes to get a killed worker's partitions."""


def loaded(name: str) -> tuple[list[list[bytes]], dict[str, Any]]:
    frames = captured_frames(name)
    return frames, captured_truth(name)


PLAYED = {name: loaded(name)[0] for name in NAMES}
TRUTHS = {name: loaded(name)[1] for name in NAMES}


def play(pipeline: Any, kills: list[threading.Event]) -> None:
    """Publish both captures side by side, portion by portion."""
    messages = sorted(
        (turn / len(frames), name, parts)
        for name, frames in PLAYED.items()
        for turn, parts in enumerate(frames)
    )
    first = 0.0
    for number, (last, seconds) in enumerate(PORTIONS):
        began = time.monotonic()
        for share, name, parts in messages:
            if first <= share < last:
                at = began + (share - first) / (last - first) * seconds
                while time.monotonic() < at and not (number < len(kills) and kills[number].is_set()):
                    time.sleep(0.005)
                pipeline.publish(name, parts)
        if number < len(kills):
            kills[number].wait(60)
        first = last


def batches(pipeline: Any) -> int:
    """How many the tables count."""
    ((count,),) = pipeline.query("SELECT sum(batches) FROM {}.stream_health_10s FINAL")
    return int(count)


@pytest.fixture(scope="module")
def disturbed(new_pipeline: Callable[..., Any]) -> Any:
    """The pipeline after both captures, of which three workers saw a part each."""
    pipeline = new_pipeline(*NAMES)
    worker, connector = pipeline.start("work"), pipeline.start("connect")
    worker.wait_said("partitions assigned")
    pipeline.wait_subscribed()
    kills = [threading.Event() for _ in PORTIONS[1:]]
    player = threading.Thread(target=play, args=(pipeline, kills))
    player.start()
    for kill in kills:
        # Something of this worker's own is in the tables, and more is on its way.
        worker.wait_said("partitions assigned")
        before, deadline = batches(pipeline), time.monotonic() + 60
        while batches(pipeline) == before:
            assert time.monotonic() < deadline, worker.said()[-3000:]
            time.sleep(0.05)
        worker.kill()
        kill.set()
        worker = pipeline.start("work")
    player.join(90.0)
    assert not player.is_alive(), "not done after 90 s"
    pipeline.wait_batches({name: TRUTHS[name]["received_batches"] for name in NAMES})
    pipeline.finish(connector, worker)
    return pipeline


def test_the_worker_was_killed_in_the_middle(disturbed: Any) -> None:
    ends = [started.process.returncode for started in disturbed.processes]
    assert sorted(ends) == [-9, -9, 0, 0]


def test_occupancy_is_what_the_engines_held(disturbed: Any) -> None:
    expected = {}
    for name, truth in TRUTHS.items():
        for group in truth["groups"]:
            copies = [row[2] for row in truth["final_cached"] if row[0] == group["idx"]]
            size = group["block_size"]
            expected[name, "gpu", group["idx"]] = (sum(copies), len(copies), len(copies) * size, "complete")
    chunks = TRUTHS[NAMES[0]]["offload"]["final_ready_chunks"]
    expected[NAMES[0], "cpu", 0] = (chunks, chunks, 0, "complete")
    assert disturbed.latest_occupancy() == expected


def test_flow_counts_everything_once(disturbed: Any) -> None:
    rows = disturbed.query(
        "SELECT replica, sum(stored_blocks), sum(removed_blocks), sum(filled_blocks), sum(evicted_blocks), "
        "sum(cleared_blocks), sum(unknown_removed_blocks), sum(reannounced_blocks) "
        "FROM {}.flow_10s FINAL WHERE medium = 'gpu' GROUP BY replica ORDER BY replica"
    )
    counters = {name: TRUTHS[name]["engine_counters"] for name in NAMES}
    assert rows == [
        (
            name,
            known["map_inserts"],
            known["blocks_evicted"],
            known["map_inserts"] - known["map_inserts_duplicate_hash"],
            known["map_pops"] - known["map_pops_other_copy_remains"],
            known["physical_entries_dropped_by_reset"],
            0,
            0,
        )
        for name, known in counters.items()
    ]


def test_stream_health_shows_neither_loss_nor_repetition(disturbed: Any) -> None:
    rows = disturbed.query(
        "SELECT replica, sum(batches), sum(duplicate_batches + gap_batches + lost_batches), sum(restarts), "
        "sum(undecodable_events), uniq(incarnation), groupUniqArray(trust) "
        "FROM {}.stream_health_10s FINAL GROUP BY replica ORDER BY replica"
    )
    assert rows == [(name, len(PLAYED[name]), 0, 0, 0, 1, ["complete"]) for name in NAMES]


def test_rollups_cover_what_the_killed_workers_wrote(disturbed: Any) -> None:
    sums = (
        "SELECT replica, medium, sum(stored_blocks), sum(removed_blocks) FROM {}.flow_%s FINAL GROUP BY ALL"
    )
    fine, minutes, hours = (sorted(disturbed.query(sums % name)) for name in ("10s", "1m", "1h"))
    assert fine == minutes == hours
