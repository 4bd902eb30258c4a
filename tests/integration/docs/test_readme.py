"""What README and introduction to the figures show is so: settings, SQL, and the figures of a trace."""

from __future__ import annotations

import json
import re
from collections import Counter, OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any, cast

import pytest
from click.testing import CliRunner
from clickhouse_connect.driver.client import Client

from pipeline.cli.main import kvlens
from pipeline.traces.reading import read_trace
from pipeline.traces.trace import TraceRequest
from schemas.settings import Settings
from tests.support.checkout import ROOT
from tests.support.command_lines import FENCE
from tests.support.inputs.whole_trace import unpack

README = (ROOT / "README.md").read_text("utf-8")
ENGINE = "tcp://10.0.0.11:5557"
READING = (ROOT / "docs" / "reading.md").read_text("utf-8")
REPLICAS, CAPACITY = 8, 4000
"""The fleet of both pages, its caches in blocks."""
BLOCK = 512
"""Tokens of a block of the trace."""


def millions(blocks: int) -> float:
    return blocks * BLOCK / 1e6


def blocks(language: str, page: str = README) -> list[str]:
    return [block for shown, block in FENCE.findall(page) if shown == language]


def test_settings_are_accepted(tmp_path: Path) -> None:
    [block] = [block for block in blocks("toml") if "[[replicas]]" in block]
    (tmp_path / "kvlens.toml").write_text(block)
    shown = CliRunner().invoke(
        kvlens, ["config", "show", "--config", str(tmp_path / "kvlens.toml")], catch_exceptions=False
    )
    assert ENGINE in shown.stdout


def test_questions_have_answers(store_client: Client, own: Settings) -> None:
    database = own.clickhouse.database
    store_client.command(
        f"INSERT INTO {database}.occupancy_10s (window, model, replica, medium, blocks, tokens, trust)"
        " SELECT now() - 60, 'm', 'vllm-0', 'gpu', 5, 80, 'complete'"
    )
    [question] = blocks("sql")
    for zone in ("UTC", "America/New_York", "Asia/Tokyo", "Asia/Kolkata"):
        session = {"session_timezone": zone}
        [row] = store_client.query(question.replace("kvlens.", f"{database}."), settings=session).result_rows
        assert row[1:] == ("vllm-0", 5, 80, "complete")
    [question] = blocks("sql", READING)
    [row] = store_client.query(question.replace("kvlens.", f"{database}.")).result_rows
    assert len(row) == 4


@dataclass
class Hour:
    """What the trace does to round robin over LRU caches, counted block by block."""

    fills: Counter[str] = field(default_factory=Counter)
    """By cause, as plain sets of who has and who had a block tell it."""
    held: list[set[int]] = field(default_factory=list)
    """Blocks of each replica at the end."""
    lives: list[float] = field(default_factory=list)
    """Seconds from fill to eviction."""


def counted(requests: Sequence[TraceRequest]) -> Hour:
    """Of one request the tail goes first."""
    caches: list[OrderedDict[int, float]] = [OrderedDict() for _ in range(REPLICAS)]
    had: list[set[int]] = [set() for _ in range(REPLICAS)]
    hour = Hour()
    for number, request in enumerate(requests):
        here = number % REPLICAS
        cache, ids = caches[here], request.hash_ids
        hits = next((place for place, block in enumerate(ids) if block not in cache), len(ids))
        for block in ids[:hits]:
            cache.move_to_end(block)
        while len(cache) + len(ids) - hits > CAPACITY:
            hour.lives.append(request.seconds - cache.popitem(last=False)[1])
        for block in (block for block in ids[hits:] if block not in cache):
            evicted, held = block in had[here], any(block in other for other in caches)
            if held:
                hour.fills["peer_and_evicted" if evicted else "peer"] += 1
            elif evicted:
                hour.fills["evicted"] += 1
            else:
                hour.fills["evicted_elsewhere" if any(block in each for each in had) else "cold"] += 1
        for block in reversed(ids):
            cache.setdefault(block, request.seconds)
            cache.move_to_end(block)
        had[here].update(ids)
    hour.held = [set(cache) for cache in caches]
    return hour


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("trace") / "conversation.jsonl"
    unpack(path)
    return path


@pytest.fixture(scope="module")
def hour(trace: Path) -> Hour:
    return counted(read_trace(trace).requests)


@pytest.fixture(scope="module")
def row(trace: Path) -> dict[str, Any]:
    """What `whatif` says of the same, which asks the fleet agent."""
    arguments = ["whatif", str(trace), "--replicas", str(REPLICAS), "--capacity", str(CAPACITY), "--json"]
    result = CliRunner().invoke(kvlens, arguments, catch_exceptions=False)
    [row] = json.loads(result.stdout)["rows"]
    return cast("dict[str, Any]", row)


def found() -> str:
    """Return what the page says of the trace, as one line."""
    return " ".join(README.partition("## What it finds in a public trace\n")[2].partition("## ")[0].split())


@pytest.mark.night
def test_whatif_counts_what_the_trace_does(row: dict[str, Any], hour: Hour) -> None:
    assert {cause: blocks for cause, blocks in row["fills"].items() if blocks} == hour.fills
    assert row["queried_blocks"] - row["hit_blocks"] == hour.fills.total()


@pytest.mark.night
def test_the_first_figures_are_those_of_the_trace(row: dict[str, Any], hour: Hour) -> None:
    fills, filled = hour.fills, hour.fills.total()
    both, elsewhere = fills["peer_and_evicted"], fills["evicted_elsewhere"]
    routing, cache = fills["peer"] + both, fills["evicted"] + both
    avoidable = routing + fills["evicted"] + elsewhere
    assert f"**{100 * avoidable / filled:.0f} % of the prefill" in found()
    assert f"{millions(avoidable):.1f} of {millions(filled):.0f} million tokens of prefill" in found()
    # More cache alone: endless caches under the same router hit no more.
    own_ideal = row["own_ideal_hit_rate"] * row["queried_blocks"] - row["hit_blocks"]
    assert cache == round(own_ideal)
    assert f"for {100 * routing / filled:.0f} % of the prefill another replica held the blocks" in found()
    assert f"by prefix, worth {millions(routing):.1f} million tokens" in found()
    assert f"More cache alone saves at most {100 * cache / filled:.1f} %" in found()
    assert f"of which routing would also save {100 * both / filled:.1f} points" in found()
    assert f"{100 * elsewhere / filled:.1f} % need both" in found()
    reading = " ".join(READING.split())
    assert f"For {100 * routing / filled:.0f} % another replica held the block" in reading
    assert f"saves at most {100 * cache / filled:.1f} %: `evicted` and `peer_and_evicted`" in reading
    assert f"The capacity share on the boards is {100 * (cache + elsewhere) / filled:.0f} %" in reading
    for page in (README, READING):
        assert f"{100 * row['block_hit_rate']:.1f}" in page
    for cause in ("peer", "peer_and_evicted", "evicted", "evicted_elsewhere", "cold"):
        shares = f"{100 * fills[cause] / row['queried_blocks']:.1f} % | {100 * fills[cause] / filled:.1f} %"
        assert f"| `{cause}` | {shares} |" in READING


def test_what_is_cached_where_is_that_of_the_trace(hour: Hour) -> None:
    copies, distinct = sum(map(len, hour.held)), len(set().union(*hour.held))
    assert f"{millions(copies):.1f} million tokens at the end" in found()
    assert (
        f"{100 * (copies - distinct) / copies:.0f} % of them copies of what another replica also holds"
        in found()
    )
    assert f"had lived no longer than {median(hour.lives) / 60:.1f} minutes" in found()


def test_the_recount_and_the_readme_have_the_same_tokens(row: dict[str, Any], hour: Hour) -> None:
    """Those of the recount are in tests/bench/RESULTS.md, from tests.support.advice.whole_trace."""
    filled = hour.fills.total()
    avoidable = filled - hour.fills["cold"]
    routing = hour.fills["peer"] + hour.fills["peer_and_evicted"]
    recorded = " ".join((ROOT / "tests" / "bench" / "RESULTS.md").read_text("utf-8").split())
    assert row["fills"]["unknown"] == 0
    assert "no token has an unknown cause" in found()
    assert f"the same {filled * BLOCK:,} tokens" in found()
    assert f"Of {filled * BLOCK:,} tokens of prefill, {avoidable * BLOCK:,} are avoidable" in recorded
    assert f"routing promises {routing * BLOCK:,}" in recorded


@pytest.mark.night
def test_with_sticky_routing_less_is_avoidable(trace: Path) -> None:
    arguments = ["whatif", str(trace), "--replicas", str(REPLICAS), "--capacity", str(CAPACITY), "--json"]
    result = CliRunner().invoke(kvlens, [*arguments, "--routing", "sticky"], catch_exceptions=False)
    [row] = json.loads(result.stdout)["rows"]
    filled = sum(row["fills"].values())
    assert f"With sticky routing it is {100 * (filled - row['fills']['cold']) / filled:.0f} %" in found()


def test_versions_and_state_are_those_of_engines_and_package() -> None:
    engines = (ROOT / "docs" / "engines.md").read_text("utf-8")
    for name in ("vLLM", "SGLang"):
        [versions] = re.findall(rf"\| {name} ([\d.]+ to [\d.]+)|, {name} ([\d.]+ to [\d.]+)", README)
        assert f"| {name} | releases {''.join(versions)}" in engines
    assert f"alpha, {version('kvlens')}." in README


def test_both_pages_ask_what_would_help_in_the_same_words() -> None:
    [asked] = re.findall(r"kvlens (whatif build/.+)", README)
    assert f"kvlens {asked}\n" in READING
