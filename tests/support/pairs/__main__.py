"""Plays recorded fleets in which KV travels, and prints what the figures say beside what is true.

    python -m tests.support.pairs tests/captures/pairs

Each fleet is played with clocks that are right and with that of one engine off, of one that decodes if there
is one; each time with all replicas in one partition and with one each, live and caught up. With `--learnt`
only what engines count says which of them receive KV. The exit code is 1 where these four differ in any
cause, where more than 0.6 % of the prompts' tokens are wrong although no transfer failed, or where a clock
moves more than that into or out of what is avoidable.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path

from pipeline.text_table import text_table
from tests.support.pairs.judged import AVOIDABLE, Judged, causes, judged
from tests.support.pairs.played import LAYOUTS, READINGS, played
from tests.support.pairs.recorded import Recorded, fleets

CLOCKS = (0.0, -1.0, -0.1, 1.0)
MOST_WRONG = 0.006
"""Share of the tokens of whole blocks of prompts that an engine filled."""
_HEADS = (
    *("clock", "engine", "role", "filled", "promoted", "transferred", "truly came", "avoidable", "truly"),
    *("wrong", "unless failed", ""),
)

Tokens = dict[tuple[str, int], Counter[str]]


class Trial:
    """A fleet, played with the clock of one engine off."""

    def __init__(self, engines: Sequence[Recorded], clock: float, *, labelled: bool = True) -> None:
        self._engines = engines
        self._off = next((each for each in engines if each.role == "decode"), engines[0]).name
        self._clock = clock
        self.complaints: list[str] = []
        shards = played(engines, {self._off: clock}, labelled=labelled)
        self._first = shards.tokens()
        recounted = causes(shards.applied)
        self.found = {
            each.name: judged(each, recounted, clock if each.name == self._off else 0.0) for each in engines
        }
        for engine in engines:
            if self.found[engine.name].unknown:
                self._complain(f"{self.found[engine.name].unknown} blocks of {engine.name} are not there")
            if self._first.get((engine.replica, engine.dp_rank), Counter()) != self.found[engine.name].said:
                self._complain(f"agent and recount differ for {engine.name}")
        for number, (layout, reading) in enumerate(product(LAYOUTS, READINGS)):
            shards = played(
                engines,
                {self._off: clock},
                LAYOUTS[layout],
                READINGS[reading],
                seed=number,
                labelled=labelled,
            )
            late, tokens = shards.out_of_order(), shards.tokens()
            if late or tokens != self._first:
                self._complain(f"{layout}, {reading}: {late} late; {_differences(self._first, tokens)}")

    def rows(self, right: dict[str, Judged]) -> Iterator[tuple[str, ...]]:
        """Yield a row for each engine; `right` is what was found with clocks that are."""
        for engine in self._engines:
            found, before = self.found[engine.name], right[engine.name]
            within = found.wrong_unless_failed <= MOST_WRONG * found.prompt
            moved = abs(_avoidable(found) - _avoidable(before)) <= MOST_WRONG * max(
                found.prompt, before.prompt
            )
            if not (within and moved):
                self._complain(f"{engine.name}: {'clocks decide' if within else 'too much is wrong'}")
            clock = f"{self._clock:+g} s" if engine.name == self._off and self._clock else ""
            yield clock, *_cells(engine, found), "" if within and moved else "TOO MUCH"

    def _complain(self, what: str) -> None:
        self.complaints.append(f"{self._off} {self._clock:+g} s: {what}")


def _avoidable(found: Judged) -> int:
    return sum(found.said[cause] for cause in AVOIDABLE)


def _cells(engine: Recorded, found: Judged) -> tuple[str, ...]:
    said = found.said
    figures = (
        said.total() - said["reannounced"],
        said["promoted"],
        said["transferred"],
        found.came if engine.truth else None,
        _avoidable(found),
        found.avoidable if engine.truth else None,
    )
    shares = [
        f"{part / found.prompt:.2%}" if found.prompt else "?"
        for part in (found.wrong, found.wrong_unless_failed)
    ]
    return (
        *(engine.name, engine.role or "-"),
        *("?" if figure is None else f"{figure:,}" for figure in figures),
        *shares,
    )


def _differences(first: Tokens, other: Tokens) -> str:
    """Return by how many tokens each cause of each engine differs from the first run."""
    said = []
    for of in sorted(first.keys() | other.keys()):
        before, after = first.get(of, Counter[str]()), other.get(of, Counter[str]())
        for cause in sorted(before.keys() | after.keys()):
            if before[cause] != after[cause]:
                said.append(f"{of[0]}/{of[1]} {cause} {after[cause] - before[cause]:+,}")
    return ", ".join(said) or "the same causes"


def _right(fleet: str, engines: Sequence[Recorded], clocks: Sequence[float], *, labelled: bool) -> bool:
    """Print what comes of a fleet; whether all of it is right."""
    trials = [Trial(engines, clock, labelled=labelled) for clock in clocks]
    rows = [row for trial in trials for row in trial.rows(trials[0].found)]
    _say(f"{fleet}: {len(engines)} engines; tokens")
    for line in text_table((_HEADS, *rows), right={0, *range(3, 11)}):
        _say(f"  {line}")
    complaints = [complaint for trial in trials for complaint in trial.complaints]
    runs = len(trials) * len(LAYOUTS) * len(READINGS)
    _say(f"  {runs} runs" + ("" if complaints else ": with the same clocks the same causes"))
    for complaint in complaints:
        _say(f"  {complaint}")
    return not complaints


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("directory", type=Path)
    parser.add_argument("fleets", nargs="*", help="some of the directory; by default all")
    parser.add_argument(
        "--clocks", type=float, nargs="+", default=CLOCKS, help="seconds; the right one first"
    )
    parser.add_argument("--learnt", action="store_true", help="nobody says which engines receive KV")
    asked = parser.parse_args()
    known = fleets(asked.directory)
    if unknown := {*asked.fleets} - known.keys() or (not known and {"*"}):
        sys.exit(f"{asked.directory}: no streams of {', '.join(sorted(unknown))}")
    right = [
        _right(fleet, known[fleet], asked.clocks, labelled=not asked.learnt)
        for fleet in asked.fleets or known
    ]
    sys.exit(not all(right))


if __name__ == "__main__":
    main()
