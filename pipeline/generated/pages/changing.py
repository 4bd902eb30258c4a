"""`tests/tiers.toml`, checked, and docs/changing.md, made of it: what to open and to run for a change."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from pipeline.generated.pages.markdown import code, page, table

CHANGES_FILE = Path(__file__).parents[3] / "tests" / "tiers.toml"
INTRODUCTION = """\
[Architecture](architecture.md#the-rooms) shows which step is where. `make test-changed BASE=main` runs the
tests of the rows whose paths differ from `main` (`tests/tiers.toml` names them), cases of the night included,
and those that mirror the room of each path. [What runs when](contributing.md#tests)."""


class Change(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One row of the table."""

    change: str
    open: str
    """Markdown; what it names in backticks, relative to the checkout, are the places of the change."""
    run: list[str]
    """Files and directories of tests."""
    beside: str = ""
    """What else to run or to look at, in Markdown."""
    paths: list[str] = []
    """More places of the change."""

    @property
    def places(self) -> list[str]:
        """Paths that may be those of files or directories; some are names inside others."""
        named = re.findall(r"`([\w./-]+)`", self.open)
        return [*(name.rstrip("/") for name in named), *self.paths]


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    row: list[Change]


def load_changes(path: Path = CHANGES_FILE) -> list[Change]:
    """Return the rows in the order of the file.

    Raises msgspec.ValidationError when a row has an unknown, missing or wrong key.
    """
    return msgspec.toml.decode(path.read_bytes(), type=_File).row


def changing_page() -> bytes:
    return page(
        "To change X, open Y",
        code("tests/tiers.toml"),
        INTRODUCTION,
        table(("to change", "open"), [(change.change, _open(change)) for change in load_changes()]),
    )


def _open(change: Change) -> str:
    return f"{change.open}. Besides: {change.beside}" if change.beside else change.open
