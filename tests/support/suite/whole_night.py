"""Runs everything, part by part, and goes on with the rest where a night on these files was interrupted.

    python -m tests.support.suite.whole_night ARGUMENTS OF THE RUNNER, FOR THE CASES

A night takes hours. Which parts passed is kept in `build/night.json` for the tree that git names, until all
have; nothing is kept of a checkout with changes. A part that fails ends nothing: it is named at the end.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tests.support.checkout import ROOT

KEPT = ROOT / "build" / "night.json"
CASES = (
    *(f"tests/system/{room}" for room in ("faults", "whole", "browser", "commands", "suite")),
    *("tests/integration", "tests/simulation", "tests/unit"),
)
"""All but those with real parts; what the day runs least of comes first."""
TARGETS = (("faults",), ("fuzz",), ("simulate", "--seconds=600"), ("test-fleet",))
"""Of the Makefile, with their arguments."""

Commands = Mapping[str, Sequence[str]]
"""By the name of the part, in the order in which they run."""
Passed = dict[str, float]
"""Name of a part to the seconds that it took."""


def commands(arguments: Sequence[str]) -> Commands:
    """Return what a night runs."""
    runner = [sys.executable, "-m", "tests.support.suite.run", *arguments]
    make = ["make", "--no-print-directory"]
    return {
        **{cases: [*runner, cases] for cases in CASES},
        **{target: [*make, target, f"ARGS={' '.join(given)}"] for target, *given in TARGETS},
    }


def tree() -> str | None:
    """Return git's name of the files as they are; None where they are not those of a commit."""
    git = ["git", "-C", str(ROOT)]
    changed = subprocess.run([*git, "status", "--porcelain"], check=True, capture_output=True, text=True)
    if changed.stdout:
        return None
    named = subprocess.run([*git, "rev-parse", "HEAD^{tree}"], check=True, capture_output=True, text=True)
    return named.stdout.strip()


def kept(of: str | None, path: Path = KEPT) -> Passed:
    """Return which parts passed before on a tree."""
    if of is None or not path.exists():
        return {}
    found = json.loads(path.read_text())
    return dict(found["passed"]) if found["tree"] == of else {}


def night(
    parts: Commands, of: str | None, run: Callable[[Sequence[str]], int], path: Path = KEPT
) -> tuple[Passed, list[str]]:
    """Run the parts that did not pass before; return all that passed, and those that failed."""
    passed, failed = kept(of, path), []
    for name, command in parts.items():
        if name in passed:
            print(f"== {name}: passed before, in {passed[name]:.0f} s", flush=True)
            continue
        print(f"== {name}", flush=True)
        began = time.monotonic()
        if run(command):
            failed.append(name)
            continue
        passed[name] = time.monotonic() - began
        if of is not None:
            path.parent.mkdir(exist_ok=True)
            path.write_text(json.dumps({"tree": of, "passed": passed}))
    if not failed:
        path.unlink(missing_ok=True)
    return passed, failed


def main(*arguments: str) -> int:
    of = tree()
    try:
        passed, failed = night(commands(arguments), of, lambda command: subprocess.call(command, cwd=ROOT))
    except KeyboardInterrupt:
        return 130
    if failed:
        print(f"of the night these failed: {', '.join(failed)}")
        return 1
    minutes = sum(passed.values()) / 60
    print(f"the night passed: {len(passed)} parts in {minutes:.0f} min, tree {of or 'with changes'}")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
