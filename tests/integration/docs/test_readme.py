"""What README and introduction to the figures show is so: settings, SQL, and the figures of a trace."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner
from clickhouse_connect.driver.client import Client

from pipeline.cli.main import kvlens
from pipeline.clickhouse import migrations
from pipeline.local.clickhouse.embedded import EmbeddedStore
from schemas.settings import ClickHouse, Settings
from tests.support.checkout import ROOT
from tests.support.command_lines import FENCE
from tests.support.inputs.whole_trace import unpack

README = (ROOT / "README.md").read_text("utf-8")
ENGINE = "tcp://10.0.0.11:5557"
READING = (ROOT / "docs" / "reading.md").read_text("utf-8")


def blocks(language: str, page: str = README) -> list[str]:
    return [block for shown, block in FENCE.findall(page) if shown == language]


def test_settings_are_accepted(tmp_path: Path) -> None:
    [block] = [block for block in blocks("toml") if "[[replicas]]" in block]
    (tmp_path / "kvlens.toml").write_text(block)
    shown = CliRunner().invoke(
        kvlens, ["config", "show", "--config", str(tmp_path / "kvlens.toml")], catch_exceptions=False
    )
    assert ENGINE in shown.stdout


def test_questions_have_answers(store: EmbeddedStore, store_client: Client, database: str) -> None:
    migrations.apply(Settings(clickhouse=ClickHouse(url=store.url, database=database)))
    store_client.command(
        f"INSERT INTO {database}.occupancy_10s (window, model, replica, medium, blocks, tokens, trust)"
        " SELECT now() - 60, 'm', 'vllm-0', 'gpu', 5, 80, 'complete'"
    )
    [question] = blocks("sql")
    [row] = store_client.query(question.replace("kvlens.", f"{database}.")).result_rows
    assert row[1:] == ("vllm-0", 5, 80, "complete")
    [question] = blocks("sql", READING)
    [row] = store_client.query(question.replace("kvlens.", f"{database}.")).result_rows
    assert len(row) == 4


def test_the_first_figures_are_those_of_the_trace(tmp_path: Path) -> None:
    trace = tmp_path / "conversation.jsonl"
    unpack(trace)
    arguments = ["whatif", str(trace), "--replicas", "8", "--capacity", "4000", "--json"]
    result = CliRunner().invoke(kvlens, arguments, catch_exceptions=False)
    [row] = json.loads(result.stdout)["rows"]
    fills, filled = row["fills"], sum(row["fills"].values())
    assert filled == row["queried_blocks"] * (1 - row["block_hit_rate"])
    both = fills["peer_and_evicted"]
    routing, capacity = fills["peer"] + both, fills["evicted"] + fills["evicted_elsewhere"] + both
    parts = (routing + capacity - both, routing, capacity, both)
    avoidable, routing_share, capacity_share, both_share = (f"{100 * part / filled:.0f} %" for part in parts)
    top = README.partition("## ")[0].replace("\n", " ")
    assert f"**{avoidable} of your prefill" in top
    assert f"for {routing_share} of the prefill another replica held the blocks" in top
    assert f"{capacity_share} had been evicted (more cache), {both_share} are both" in top
    for page in (README, READING):
        assert f"{100 * row['block_hit_rate']:.1f}" in page
    for cause in ("peer", "peer_and_evicted", "evicted", "evicted_elsewhere", "cold"):
        shares = f"{100 * fills[cause] / row['queried_blocks']:.1f} % | {100 * fills[cause] / filled:.1f} %"
        assert f"| `{cause}` | {shares} |" in READING


def test_both_pages_show_the_same_answer_to_what_would_help() -> None:
    [table] = [block for language, block in FENCE.findall(README) if "requests in 59 min" in block]
    assert table in READING
