"""Small streams that were once counted wrong, against what their publishers held."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pipeline.recordings.analysis import Analysis
from pipeline.recordings.events import RecordedEvents
from tests.support.checkout import CAPTURES

SMALL = CAPTURES / "small"


def analysed(path: Path) -> list[dict[str, Any]]:
    analysis = Analysis(path)
    analysis.finish()
    return [
        {key: row[key] for key in ("medium", "physical", "distinct", "tokens", "trust")}
        for row in analysis.summary()
    ]


def engine_of(path: Path) -> str:
    return [record.engine for record in RecordedEvents(path)][-1]


def test_atom_with_numbers_keeps_one_copy_of_each_block() -> None:
    """Then every block that its block manager holds is evicted once."""
    path = SMALL / "e1-atom-numbered.frames.msgpack.gz"
    assert engine_of(path) == "atom"
    held = [line["media"]["gpu"] for line in Analysis(path).every_batch()]
    assert {figures["physical"] == figures["distinct"] for figures in held} == {True}
    assert held[-95]["physical"] == 94
    assert analysed(path) == [
        {"medium": "gpu", "physical": 0, "distinct": 0, "tokens": 0, "trust": "complete"},
        # Blocks of other hosts, which are announced as they come and never again.
        {"medium": "remote", "physical": 6, "distinct": 6, "tokens": 96, "trust": "complete"},
    ]


def test_a_simulators_maps_are_of_no_known_engine() -> None:
    path = SMALL / "e2-sim-map.frames.msgpack.gz"
    assert engine_of(path) == ""
    assert analysed(path) == [
        {"medium": "gpu", "physical": 35, "distinct": 35, "tokens": 35 * 16, "trust": "complete"}
    ]


def test_pages_that_are_not_full_hold_the_tokens_that_they_have() -> None:
    path = SMALL / "g2-smallest.kvrec"
    assert engine_of(path) == "tokenspeed"
    assert analysed(path) == [
        {"medium": "gpu", "physical": 2, "distinct": 2, "tokens": 20, "trust": "complete"}
    ]
