"""`kvlens whatif` on the whole conversation trace, which takes seconds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from pipeline.cli.main import kvlens
from tests.support.inputs.whole_trace import unpack


@pytest.mark.night
def test_the_published_figures_of_the_conversation_trace(tmp_path: Path) -> None:
    trace = tmp_path / "conversation.jsonl"
    unpack(trace)
    arguments = ["whatif", str(trace), "--replicas", "8,4,2,1", "--json"]
    result = CliRunner().invoke(kvlens, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)["rows"]
    rates = [round(100 * row["block_hit_rate"], 2) for row in found]
    assert rates == [13.63, 19.18, 27.06, 36.64]
    assert [row["actual"] for row in found] == [True, False, False, False]
    for row, rate in zip(found, rates, strict=True):
        queried = row["queried_blocks"]
        assert queried == 288_500
        assert row["fills"]["cold"] == 182_790
        # What the peers cost is exactly what is missing to one cache for all.
        assert round(100 * (row["ideal_hit_rate"] - row["fills"]["peer"] / queried), 2) == rate
        assert round(100 * row["ideal_hit_rate"], 2) == 36.64
    assert all(row["promised"]["kept"] for row in found[1:])
    assert found[-1]["promised"]["at_most"] == found[-1]["block_hit_rate"]
