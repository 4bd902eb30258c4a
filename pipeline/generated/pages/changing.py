"""docs/changing.md: which files to open for a change."""

from __future__ import annotations

from pipeline.generated.changes_file import Change, load_changes
from pipeline.generated.pages.markdown import code, page, table

INTRODUCTION = """\
[Architecture](architecture.md#the-rooms) shows which step is where. `make test-changed BASE=main` runs the
tests that guard the paths that differ from `main` (`tests/tiers.toml` names them for each row), cases of the
night included, and those that mirror the room of each path; [contributing](contributing.md#tests) says what
runs when."""


def changing_page() -> bytes:
    return page(
        "To change X, open Y",
        code("tests/tiers.toml"),
        INTRODUCTION,
        table(("to change", "open"), [(change.change, _open(change)) for change in load_changes()]),
    )


def _open(change: Change) -> str:
    return f"{change.open}. Besides: {change.beside}" if change.beside else change.open
