"""The lines that say how long a comparison takes and how far it is."""

from __future__ import annotations

import io
from collections.abc import Callable

from pipeline.verify.progress import Progress, ReadingCost


def run(*, expected: bool = False, fitted: Callable[[str], str] = str) -> str:
    """Read 3,000 of the events' records in 3 s, then 100 of the residency topic's in 2 s."""
    now, out = 0.0, io.StringIO()
    progress = Progress(out, clock=lambda: now, fitted=fitted)
    if expected:
        progress.expect("events", 3000)
        progress.expect("residency", 600_000)
        costs = {"events": ReadingCost(3000, 3.0, 6.0), "residency": ReadingCost(600_000, 12_000.0, 1200.0)}
        progress.estimate(costs, 1234.5)
    progress.partition("events", 2, 8)
    for _ in range(3000):
        now += 0.001
        progress.record()
    progress.partition("residency", 0, 8)
    for _ in range(100):
        now += 0.02
        progress.record()
    progress.end()
    return out.getvalue()


def test_a_terminal_shows_partition_and_speed_in_one_line() -> None:
    shown = run().split("\r\x1b[K")
    assert shown[1] == "reading events, partition 3 of 8 (0 records)"
    assert shown[15].startswith("reading events, partition 3 of 8 (2,")
    assert shown[15].endswith(" records, 1,000 records/s)")
    assert shown[-2].startswith("reading residency, partition 1 of 8 (3,")
    assert shown[-1] == ""
    assert 15 < len(shown) < 35
    assert "\n" not in "".join(shown)


def test_lines_say_beforehand_what_all_of_it_comes_to() -> None:
    shown = run(expected=True).split("\r\x1b[K")
    assert shown[1:3] == [
        "603,000 records, about 200 min, 1,206 MB to read\n",
        "up to 1,234 MB of memory for rows, besides the blocks that are resident\n",
    ]
    assert not any(line.endswith("\n") for line in shown[3:])


def test_the_time_left_follows_what_each_topic_needs() -> None:
    shown = run(expected=True).split("\r\x1b[K")
    # 3,000 records, a thousand a second, and what the trial said of the residency topic.
    assert ", 1,000 records/s, 200 min left)" in shown[12]
    # 599,900 records, fifty a second.
    assert shown[-2].endswith(", 50 records/s, 200 min left)")


def test_the_line_that_is_overwritten_is_cut_and_the_lines_that_stay_are_not() -> None:
    shown = run(expected=True, fitted=lambda line: line[:20]).split("\r\x1b[K")
    assert {line.endswith("\n") for line in shown[1:3]} == {True}
    assert set(map(len, shown[3:-1])) == {20}


def test_no_speed_is_shown_of_what_does_not_read() -> None:
    out = io.StringIO()
    clock = iter(float(second) for second in range(100))
    progress = Progress(out, lambda: next(clock))
    progress.partition("events", 0, 1)
    assert "records/s" not in out.getvalue()
    progress.record()
    assert "records/s" in out.getvalue()
    progress.step("comparing flow_10s")
    assert out.getvalue().endswith("comparing flow_10s (1 records)")
