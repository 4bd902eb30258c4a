"""docs/operations.md says the same five things of every failure, beginning with what somebody sees."""

from __future__ import annotations

import re

from tests.support.checkout import ROOT
from tests.support.command_lines import FENCE

TEXT = (ROOT / "docs/operations.md").read_text("utf-8")
SECTIONS = dict(section.split("\n", 1) for section in re.split(r"^## ", TEXT, flags=re.M)[1:])
FAILURES = {name: text for name, text in SECTIONS.items() if name not in ("Doctor", "What fails how")}
ELSEWHERE = TEXT.split("\n## ")[0]
PARTS = ["Symptom", "Cause", "Do", "By itself", "Lost"]
SCREEN = 45
"""Lines of a window at which somebody is called at night."""


def test_every_failure_has_a_symptom_a_cause_a_remedy_what_heals_by_itself_and_what_is_lost() -> None:
    assert len(FAILURES) >= 18
    for name, text in FAILURES.items():
        assert re.findall(r"^- \*\*([\w ]+):\*\* \S", text.split("\n### ")[0], re.M) == PARTS, name


def test_a_failure_fits_on_a_screen() -> None:
    for name, text in FAILURES.items():
        for part in text.split("\n### "):
            assert len(part.splitlines()) <= SCREEN, name


def test_a_symptom_can_be_searched_for() -> None:
    for name, text in FAILURES.items():
        symptom = text.partition("- **Symptom:**")[2].partition("\n- **")[0]
        assert "`" in symptom, name


def test_what_other_pages_have_is_linked() -> None:
    rows = re.findall(r"^\| (.+) \| \[.+\]\((.+)\) \|$", FENCE.sub("", ELSEWHERE), re.M)
    assert rows
    assert all("`" in seen and ".md#" in page for seen, page in rows)
