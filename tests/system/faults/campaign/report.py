"""The report of a campaign: what was done, how it ended, how long it took until everything was live again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from pipeline.text_table import text_table


@dataclass(frozen=True)
class Outcome:
    """What became of one fault."""

    number: int
    kind: str
    what: str
    """What was struck; begins with `nothing:` where it could not be done."""
    at_seconds: float
    """Since the campaign began."""
    held_seconds: float
    live_after: float | None
    """Seconds from the return of the last part until everything was live; None where nobody waited."""

    @property
    def done(self) -> bool:
        return not self.what.startswith("nothing")


def line(outcome: Outcome) -> str:
    """Return one line about a fault, for whoever watches."""
    live = "" if outcome.live_after is None else f"; live after {outcome.live_after:.1f} s"
    return (
        f"{outcome.at_seconds:7.1f} s  {outcome.number:3}  {outcome.kind}: {outcome.what}, "
        f"held {outcome.held_seconds:.1f} s{live}"
    )


def table(outcomes: Sequence[Outcome]) -> Iterable[str]:
    """Give the lines of a table with a row for each kind."""
    rows = [("fault", "done", "not come", "live after s (median)", "(longest)")]
    for kind in dict.fromkeys(sorted(one.kind for one in outcomes)):
        of_kind = [one for one in outcomes if one.kind == kind]
        live = [one.live_after for one in of_kind if one.live_after is not None]
        rows.append(
            (
                kind,
                str(sum(one.done for one in of_kind)),
                str(sum(not one.done for one in of_kind)),
                f"{median(live):.1f}" if live else "-",
                f"{max(live):.1f}" if live else "-",
            )
        )
    return text_table(rows, right=(1, 2, 3, 4))
