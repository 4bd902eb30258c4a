"""docs/operations.md says the same four things of every failure, and a table of symptoms leads to each."""

from __future__ import annotations

import re

from tests.support.checkout import ROOT
from tests.support.command_lines import FENCE

TEXT = (ROOT / "docs/operations.md").read_text("utf-8")
SECTIONS = dict(section.split("\n", 1) for section in re.split(r"^## ", TEXT, flags=re.M)[1:])
FAILURES = {name: text for name, text in SECTIONS.items() if name not in ("Doctor", "What fails how")}
SYMPTOMS = TEXT.split("\n## ")[0]
PARTS = ["Means", "kvlens", "Do", "Lost"]
SCREEN = 45
"""Lines of a window at which somebody is called at night."""


def test_every_failure_says_what_it_means_what_happens_what_to_do_and_what_is_lost() -> None:
    assert len(FAILURES) >= 18
    for name, text in FAILURES.items():
        assert re.findall(r"^- \*\*(\w+):\*\* \S", text.split("\n### ")[0], re.M) == PARTS, name


def test_a_failure_fits_on_a_screen() -> None:
    for name, text in FAILURES.items():
        for part in text.split("\n### "):
            assert len(part.splitlines()) <= SCREEN, name


def test_symptoms_lead_to_every_failure() -> None:
    rows = re.findall(r"^\| (.+) \| \[(.+)\]\(#(.+)\) \|$", FENCE.sub("", SYMPTOMS), re.M)
    assert [name for _, name, _ in rows] == list(FAILURES)
    assert all("`" in seen for seen, _, _ in rows)
