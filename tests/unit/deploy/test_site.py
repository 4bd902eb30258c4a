"""The site of the documentation: every page is in its navigation, and renders there as it does on GitHub."""

from __future__ import annotations

import re
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from tests.support.checkout import ROOT

DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
WITH_PATHS = runpy.run_path(str(ROOT / "deploy/site/links.py"))["with_paths"]


def pages(entry: Any) -> Iterator[str]:
    """Yield what a part of the navigation names."""
    if isinstance(entry, str):
        yield entry
    else:
        for part in entry.values() if isinstance(entry, dict) else entry:
            yield from pages(part)


def test_every_page_is_in_the_navigation_once() -> None:
    text = re.sub(r"!!python\S+|!ENV", "", (ROOT / "mkdocs.yml").read_text("utf-8"))
    found = list(pages(YAML(typ="safe").load(text)["nav"]))
    assert sorted(found) == sorted(str(path.relative_to(DOCS)) for path in PAGES)


def test_every_page_is_in_the_index() -> None:
    linked = set(re.findall(r"\]\(([\w/-]+\.md)\)", (DOCS / "README.md").read_text("utf-8")))
    # Those of single decisions are in the index of decisions.
    wanted = {str(path.relative_to(DOCS)) for path in PAGES if not re.match(r"\d{4}-", path.name)}
    assert linked == wanted - {"README.md"}


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(DOCS)))
def test_what_lies_in_a_list_is_indented_by_four(path: Path) -> None:
    """With fewer, GitHub takes it for a part of the list, and Python's Markdown for none."""
    before = ""
    in_block = False
    for line in path.read_text("utf-8").splitlines():
        if in_block := in_block ^ line.lstrip().startswith("```"):
            assert not re.match(r" {1,3}```", line), line
        elif re.match(r" {1,3}\S", line):
            assert before.strip(), line
            assert not re.match(r" {1,3}([-|]|\d+\.) ", line), line
        elif re.match(r"(-|\d+\.) ", line):
            assert not before.strip() or re.match(r"(-|\d+\.) | ", before), line
        before = line


def test_links_out_of_docs_lead_to_the_repository_or_name_the_path() -> None:
    text = "[a](../x/y.py), [`y.py`](../x/y.py#L1), [b](../docs/b.md#c), [c](c.md), ![d](../d.png)"
    assert WITH_PATHS(text, "page.md", "") == (
        "a (`x/y.py`), `y.py`, [b](../docs/b.md#c), [c](c.md), ![d](../d.png)"
    )
    assert WITH_PATHS("[a](../x/y.py#L1)", "page.md", "https://example.org/kvlens/") == (
        "[a](https://example.org/kvlens/blob/main/x/y.py#L1)"
    )
    assert WITH_PATHS("[a](../a.md), [b](../../b.md)", "decisions/1.md", "") == "[a](../a.md), b (`b.md`)"
