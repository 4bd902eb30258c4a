"""The demo's arithmetic and view."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from pipeline.local.demo.figures import PoolFigures, mean_lifetime
from pipeline.local.demo.freshness import FreshnessMeter
from pipeline.local.demo.terminal import freshness_line, plain, screen, table

GPU = PoolFigures(
    "a", 1, "gpu", 250, 240, 3, 4000, False, False, 500, False, False, "complete", 12.5, 2.25, 90, 8.0
)
CPU = PoolFigures("a", 1, "cpu", 7, 7, 0, None, True, False, 0, True, False, "partial", 1.0, 0.0, 0, None)


def test_mean_lifetime_takes_the_middle_of_each_bucket():
    assert mean_lifetime([]) is None
    # Bucket 11 is 1 to 2 s, bucket 13 is 4 to 8 s.
    assert mean_lifetime([0] * 11 + [3, 0, 1]) == pytest.approx((3 * 1.5 + 6) / 4)


def test_freshness_is_from_publication_to_the_first_query_that_saw_it():
    meter = FreshnessMeter()
    assert meter.quantile(0.5) is None
    for seq, at in ((5, 10.0), (6, 10.5), (7, 11.0)):
        meter.published(("a", 0), seq, at)
    meter.queryable({("a", 0): 4, ("b", 0): 9}, 11.5)
    assert meter.quantile(0.5) is None
    meter.queryable({("a", 0): 6}, 12.0)
    meter.queryable({("a", 0): 6}, 15.0)
    assert (meter.quantile(0.0), meter.quantile(0.99)) == (1.5, 2.0)
    # A new life of the engine: what nobody has seen of the old one never will be.
    meter.published(("a", 0), 0, 20.0)
    meter.queryable({("a", 0): 0}, 20.25)
    assert meter.quantile(0.0) == 0.25


@pytest.mark.parametrize("seen", [8, 9])
def test_what_a_table_has_of_the_session_before_makes_nothing_visible(seen: int):
    """Whether all of that session was seen, or not."""
    meter = FreshnessMeter()
    for seq in range(10):
        meter.published(("a", 0), seq, 1.0)
    meter.queryable({("a", 0): seen}, 2.0)
    meter.published(("a", 0), 0, 20.0)
    meter.published(("a", 0), 1, 20.5)
    meter.queryable({("a", 0): seen}, 20.75)
    meter.queryable({("a", 0): 9}, 21.0)
    meter.queryable({("a", 0): 1}, 23.0)
    assert (meter.quantile(0.0), meter.quantile(0.99)) == (1.0, 3.0)


def test_the_table_shows_bounds_and_what_is_not_known():
    lines = table([GPU, CPU])
    assert lines[1].split() == (
        [
            "a/1",
            "gpu",
            "250",
            "500",
            "██████░░░░░░",
            "3",
            "4,000",
            "12.5",
            "2.2",
            "~8.0",
            "s",
            "complete",
        ]
    )
    assert lines[2].split() == ["a/1", "cpu", "<=7", "?", "?", "1.0", "-", "-", "partial"]
    assert table([replace(GPU, at_least=True)])[1].split()[2] == ">=250"
    beyond = table([replace(GPU, entries=648, tokens=8000, is_bound=True)])[1].split()
    assert (beyond[2], beyond[6]) == ("648!", "<=8,000")
    tier = table([replace(CPU, tokens=112, is_bound=False, tokens_at_least=True, store_only=False)])
    assert (tier[1].split()[2], tier[1].split()[4]) == ("7", ">=112")
    assert "1 source, 247 blocks resident, 13.5 stored/s, 2.2 evicted/s, " in plain([GPU, CPU], (None, None))
    assert freshness_line((None, None)) == "event to queryable row: not known yet"
    assert freshness_line((0.94, 1.86)) == "event to queryable row: 0.9 s (p50), 1.9 s (p99)"


def test_the_screen_leads_to_the_page_and_says_what_happened():
    urls = {"page": "http://127.0.0.1:8080/"}
    shown = screen([GPU], (0.9, 1.9), urls, ["minute 2: a restarts"], os.terminal_size((80, 24)))
    assert "http://127.0.0.1:8080/?range=300" in shown.splitlines()[1]
    assert "minute 2: a restarts" in shown.splitlines()


@pytest.mark.parametrize("columns", [80, 100, 200])
@pytest.mark.parametrize("lines", [24, 50])
def test_the_screen_fits_the_terminal(columns: int, lines: int):
    pools = [replace(GPU, replica="vllm-0.24-small", dp_rank=rank) for rank in range(10)]
    urls = {"page": "http://127.0.0.1:8080/", **dict.fromkeys("abcdef", "http://127.0.0.1:9999/metrics")}
    notes = [
        f"minute {minute}: vllm-0.24-small has too little cache: {'it evicts ' * 9}" for minute in range(7)
    ]
    question = [f"curl {'x ' * 300}", "-> a 256, b 64, of 256 tokens"]
    size = os.terminal_size((columns, lines))
    shown = screen(pools, (0.9, 1.9), urls, notes, size, question=question).splitlines()
    assert len(shown) < lines
    assert max(map(len, shown)) <= columns
    assert shown[1].startswith("open the boards: http://127.0.0.1:8080/")
    assert sum(line.startswith("vllm-0.24-small/") for line in shown) == 10
    assert any("minute 6" in line for line in shown)
    assert any("█" in line for line in shown) == (columns >= 100)
    assert any(line.startswith("a: ") for line in shown) == (lines == 50)
    assert shown[-2] == question[-1]
    assert shown[-1] == "Ctrl-C stops it; the data stay"
