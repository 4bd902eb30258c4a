"""What a run prints."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from tests.live.comparison import Facts

SHOWN = ("copies", "blocks", "tokens", "evicted", "batches", "lives", "looked_up", "found")


def show(known: Mapping[str, Facts], told: Mapping[str, Facts]) -> None:
    """Show what engines know of themselves, and below what the tables say of them."""
    say("    " + "".join(f"{column:>10}" for column in ("engine", "", *SHOWN)))
    for name, facts in known.items():
        _show(name, facts, told.get(name))


def _show(name: str, pool: Facts, rows: Facts | None) -> None:
    for who, facts in (("pool", pool), ("rows", rows)):
        if facts is None:
            say(f"    {name:>10}{who:>10}  none")
        else:
            say(
                f"    {name:>10}{who:>10}"
                + "".join(f"{getattr(facts, figure):>10,}" for figure in SHOWN)
                + ("" if facts == pool else f"  differ: {facts}")
            )


def say(line: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
