"""Runs what a change may have broken, cases of the night included.

    python -m tests.support.suite.changed BASE ARGUMENTS OF THE RUNNER

What differs from the revision BASE, committed or not, is looked up in `tests/tiers.toml`; beside that run the
tests that mirror the room of each path, and tests that were changed themselves.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import PurePosixPath

from pipeline.generated.pages.changing import Change, load_changes
from tests.support.checkout import ROOT
from tests.support.suite.run import main as run

MIRRORS = ("tests/unit", "tests/integration")
NOT_ROOMS = {".", "connectors", "pipeline"}
ELSEWHERE = "tests/fleet"
"""It needs real servers: `make test-fleet`."""

Exists = Callable[[str], bool]


def is_below(path: str, place: str) -> bool:
    """Tell whether a path is a place, or in it."""
    return path == place or path.startswith(f"{place}/")


def of_rows(path: str, rows: Iterable[Change]) -> set[str]:
    """Return what the rows say for a path."""
    return {test for row in rows if any(is_below(path, place) for place in row.places) for test in row.run}


def of_mirrors(path: str, exists: Exists) -> set[str]:
    """Return the tests that mirror the room of a path: the deepest directory that has some."""
    found = set()
    for mirror in MIRRORS:
        rooms = [str(room) for room in PurePosixPath(path).parents if str(room) not in NOT_ROOMS]
        found |= {*[f"{mirror}/{room}" for room in rooms if exists(f"{mirror}/{room}")][:1]}
    return found


def targets(paths: Iterable[str], rows: Sequence[Change], exists: Exists) -> tuple[list[str], list[str]]:
    """Return what to run for the paths, and the paths for which nothing is known."""
    chosen: set[str] = set()
    unknown = []
    for path in paths:
        found = of_rows(path, rows) | of_mirrors(path, exists)
        if path.startswith("tests/") and PurePosixPath(path).name.startswith("test_"):
            found.add(path)
        found = {one for one in found if exists(one) and not is_below(one, ELSEWHERE)}
        chosen |= found
        if not found:
            unknown.append(path)
    whole = {one for one in chosen if not any(one != other and is_below(one, other) for other in chosen)}
    return sorted(whole), unknown


def changed(base: str) -> list[str]:
    """Return the paths that differ from a revision, with those that git does not know yet."""
    git = ["git", "-C", str(ROOT)]
    differ = [*git, "diff", "--name-only", base, "--"], [*git, "ls-files", "--others", "--exclude-standard"]
    return [
        path
        for command in differ
        for path in subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    ]


def main(base: str, *arguments: str) -> int:
    chosen, unknown = targets(changed(base), load_changes(), lambda path: (ROOT / path).exists())
    for path in unknown:
        print(f"nothing is known to guard {path}")
    if not chosen:
        print(f"nothing to run for what differs from {base}")
        return 0
    print(f"for what differs from {base}: {' '.join(chosen)}", flush=True)
    return run([*arguments, *chosen])


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
