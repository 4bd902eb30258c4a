"""Patience with a process that starts: as long as it works, up to an end."""

from __future__ import annotations

import os
import time
from pathlib import Path

from pipeline.local.processes.progress import LONGEST_TIMES, SHARE, Progress, processor_seconds


def given_up_at(seconds: float, share: float | None, *, idle_from: float = float("inf")) -> int:
    """Return the second in which a process is given up that uses that share of a processor."""
    progress = Progress(seconds, 0.0)
    for now in range(1, 100_000):
        if progress.over(now, None if share is None else min(now, idle_from) * share):
            return now
    raise AssertionError("never")


def test_idle_is_given_up_after_the_patience() -> None:
    assert given_up_at(180, 0.0) == 181
    assert given_up_at(180, None) == 181
    assert given_up_at(180, SHARE / 2) <= 361  # a process that only polls


def test_work_is_waited_for_however_slow_the_machine_is() -> None:
    # 30 to do for each of 2 processors: a fifteenth of one, and then a hang.
    assert given_up_at(180, 1 / 15) == 180 * LONGEST_TIMES + 1
    assert 1_000 < given_up_at(180, 1 / 15, idle_from=1_000) <= 1_181


def test_processor_time_is_that_of_the_group() -> None:
    before = processor_seconds(os.getpgrp())
    end = time.process_time() + 0.3
    while time.process_time() < end:
        pass
    after = processor_seconds(os.getpgrp())
    assert before is not None
    assert after is not None
    assert after - before >= 0.2


def test_names_of_commands_may_be_anything(tmp_path: Path) -> None:
    for pid, name, group in ((1, "a) b (c", 7), (2, "d", 7), (3, "e", 8)):
        (tmp_path / str(pid)).mkdir()
        numbers = " ".join(["0"] * 7 + ["100", "50", "30", "20"])
        (tmp_path / str(pid) / "stat").write_text(f"{pid} ({name}) S 1 {group} {group} {numbers} 0 0\n")
    ticks = os.sysconf("SC_CLK_TCK")
    assert processor_seconds(7, tmp_path) == 2 * 200 / ticks
    assert processor_seconds(9, tmp_path) is None
