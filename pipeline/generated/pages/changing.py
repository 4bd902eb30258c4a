"""docs/changing.md: which files to open for a change, and what to run after it."""

from __future__ import annotations

from pipeline.generated.changes_file import Change, load_changes
from pipeline.generated.pages.markdown import code, page, table

INTRODUCTION = """\
[Architecture](architecture.md#the-rooms) shows which step is where, [contributing](contributing.md#tests)
what runs when. `make test-changed BASE=main` runs the third column for all paths that differ from `main`,
cases of the night included, and the tests that mirror the room of each path."""


def changing_page() -> bytes:
    rows = [(change.change, change.open, _runs(change)) for change in load_changes()]
    return page(
        "To change X, open Y, run Z",
        code("tests/tiers.toml"),
        INTRODUCTION,
        table(("to change", "open", "run"), rows),
    )


def _runs(change: Change) -> str:
    return ", ".join([*map(code, change.run), *([change.beside] if change.beside else [])])
