"""Whoever opens the README sees first what it is about, what it shows, and how to try it."""

from __future__ import annotations

import re

from tests.support.checkout import ROOT

TOP = 50
"""Lines: what it is, what you learn, picture, what it needs, the block of `make demo` and what it does."""
IN_ORDER = (
    "kvlens is a monitor",
    "- **What is cached where**",  # what you learn
    "- **What prefill was avoidable, and how**",
    "- **How far you can trust each figure**",
    "](docs/images/fleet.webp)",  # the picture
    "| It is not |",
    "| In production | your Kafka and your ClickHouse",
    "No image and no package is published yet",
    "| State | alpha",
    "| Engines | vLLM",
    "| `make demo` |",
    "| `make test` |",
    "```sh\nmake demo\n```",
    "](docs/images/demo.svg)",
    ".venv/bin/kvlens doctor --data-dir .kvlens/demo",
)


def test_problem_answer_picture_and_demo_stand_at_the_top() -> None:
    top = "\n".join((ROOT / "README.md").read_text("utf-8").splitlines()[:TOP])
    places = [top.find(part) for part in IN_ORDER]
    assert -1 not in places, IN_ORDER[places.index(-1)]
    assert places == sorted(places)


def test_no_figures_of_a_trace_stand_before_the_picture() -> None:
    before = (ROOT / "README.md").read_text("utf-8").partition("](docs/images/fleet.webp)")[0]
    assert re.findall(r"\d", before) == []
