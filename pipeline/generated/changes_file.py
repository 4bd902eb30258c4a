"""`tests/tiers.toml`, checked: what to open for a change, and what to run after it."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

CHANGES_FILE = Path(__file__).parents[2] / "tests" / "tiers.toml"


class Change(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One row of the table."""

    change: str
    open: str
    """Markdown; what it names in backticks from the root of the checkout are the places of the change."""
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
