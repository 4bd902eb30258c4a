"""Runs everything, part by part, and goes on where a night on these files was interrupted.

    python -m tests.support.suite.whole_night ARGUMENTS OF THE RUNNER, FOR THE CASES

A night takes hours. What passed is kept in `build/night`, case by case, until all did. It counts as long as
no file differs that it may rest on: all that is committed, but for tests that only other parts run. Nothing
is kept of a checkout with changes. A part that fails ends nothing: it is named at the end.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.support.checkout import ROOT
from tests.support.suite.changed import is_below

KEPT = ROOT / "build" / "night"
CASES = (
    "tests/fleet",
    *(f"tests/system/{room}" for room in ("faults", "whole", "browser", "commands", "suite")),
    *("tests/integration", "tests/simulation", "tests/unit"),
)
"""What the day runs least of comes first."""
TARGETS = {
    "faults": ("tests/system/faults", ""),
    "fuzz": ("tests/fuzz", ""),
    "simulate": ("tests/simulation", "--seconds=600"),
}
"""Of the Makefile, with the room that they run, and their arguments."""
ROOMS = {*CASES, *(room for room, _ in TARGETS.values())}
PASSED = "passed in "
"""What the last line of a part's notes begins with."""
NO_TESTS = 5
"""Exit code of pytest where all cases had passed before."""

Run = Callable[[Sequence[str]], int]


class Part(NamedTuple):
    """Something that a night runs."""

    command: Sequence[str]
    notes: Path | None
    """Where it is noted what of it passed; None where nothing is kept."""
    by_case: bool = False


def parts(arguments: Sequence[str], kept: Mapping[str, Path]) -> dict[str, Part]:
    """Return what a night runs, by name; `kept` are the notes of the rooms."""
    runner = [sys.executable, "-m", "tests.support.suite.run", *arguments]
    make = ["make", "--no-print-directory"]
    found = {}
    for room in CASES:
        notes = kept.get(room)
        resume = [f"--resume={notes}"] if notes is not None else []
        found[room] = Part([*runner, *resume, room], notes, by_case=True)
    for name, (room, given) in TARGETS.items():
        notes = kept[room].with_name(f"{kept[room].name}-{name}") if room in kept else None
        found[name] = Part([*make, name, f"ARGS={given}"], notes)
    return found


def notes_of(files: Mapping[str, str], directory: Path, read: Callable[[str], str]) -> dict[str, Path]:
    """Return where to note what passed of each room.

    `files` are the digests of all files by path, and `read` returns the text of one.
    """
    texts = dict[str, list[str]]()
    for path in files:
        if is_below(path, "tests") and path.endswith(".py"):
            room = next((room for room in ROOMS if is_below(path, room)), "")
            texts.setdefault(room, []).append(read(path))
    found = {}
    for room in sorted(ROOMS):
        # What a room imports of others counts, and what all rooms share.
        text = "".join([*texts.get("", ()), *texts.get(room, ())])
        others = [one for one in ROOMS if one != room and one.replace("/", ".") not in text]
        rests_on = (
            f"{digest} {path}"
            for path, digest in sorted(files.items())
            if not any(is_below(path, one) for one in others)
        )
        digest = hashlib.sha256("\n".join(rests_on).encode()).hexdigest()[:16]
        found[room] = directory / f"{room.replace('/', '.')}-{digest}"
    return found


def kept_here() -> dict[str, Path]:
    """Return the notes of this checkout's rooms; none where it is not as it was committed."""
    git = ["git", "-C", str(ROOT)]
    if subprocess.run([*git, "status", "--porcelain"], check=True, capture_output=True).stdout:
        return {}
    listed = subprocess.run([*git, "ls-tree", "-r", "HEAD"], check=True, capture_output=True, text=True)
    files = {path: about for about, _, path in (line.partition("\t") for line in listed.stdout.splitlines())}
    return notes_of(files, KEPT, lambda path: (ROOT / path).read_text())


def passed_in(part: Part) -> float | None:
    """Return the seconds in which a part passed before; None if it has not."""
    lines = part.notes.read_text().splitlines() if part.notes is not None and part.notes.exists() else []
    return float(lines[-1].removeprefix(PASSED)) if lines and lines[-1].startswith(PASSED) else None


def night(named: Mapping[str, Part], run: Run) -> tuple[dict[str, float], list[str]]:
    """Run the parts that did not pass before; return the seconds of those that passed, and which failed."""
    passed, failed = dict[str, float](), list[str]()
    for name, part in named.items():
        if (before := passed_in(part)) is not None:
            print(f"== {name}: passed before, in {before:.0f} s", flush=True)
            passed[name] = before
            continue
        print(f"== {name}", flush=True)
        began = time.monotonic()
        code = run(part.command)
        if code and not (code == NO_TESTS and part.by_case and part.notes is not None):
            failed.append(name)
            continue
        passed[name] = time.monotonic() - began
        if part.notes is not None:
            part.notes.parent.mkdir(parents=True, exist_ok=True)
            with part.notes.open("a") as notes:
                notes.write(f"{PASSED}{passed[name]:.0f}\n")
    return passed, failed


def main(*arguments: str) -> int:
    kept = kept_here()
    try:
        passed, failed = night(parts(arguments, kept), lambda command: subprocess.call(command, cwd=ROOT))
    except KeyboardInterrupt:
        return 130
    if failed:
        print(f"of the night these failed: {', '.join(failed)}")
        return 1
    shutil.rmtree(KEPT, ignore_errors=True)
    minutes = sum(passed.values()) / 60
    print(f"the night passed: {len(passed)} parts, {minutes:.0f} min{'' if kept else ', with changes'}")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
