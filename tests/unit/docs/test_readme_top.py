"""Whoever opens the README sees first what it is about, what it shows, and how to try it."""

from __future__ import annotations

from tests.support.checkout import ROOT

TOP = 45
"""Lines: problem, what you learn, picture, the block of `make demo` and what it does."""
IN_ORDER = (
    "**30 % of your prefill may be work",  # the problem
    "- **What is cached where**",  # what you learn
    "- **What prefill was avoidable, and how**",
    "- **How far you can trust each figure**",
    "](docs/images/fleet.webp)",  # the picture
    "```sh\nmake demo\n```",
    "](docs/images/demo.svg)",
    ".venv/bin/kvlens doctor --data-dir .kvlens/demo",
)


def test_problem_answer_picture_and_demo_stand_at_the_top() -> None:
    top = "\n".join((ROOT / "README.md").read_text("utf-8").splitlines()[:TOP])
    places = [top.find(part) for part in IN_ORDER]
    assert -1 not in places, IN_ORDER[places.index(-1)]
    assert places == sorted(places)
