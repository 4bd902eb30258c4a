"""`make coverage`: the share of its lines that tests reach, for each room.

Lines of processes that tests start count, unless a test kills them, and compiled ones do where pytest's own
processes run them (`compiled_lines.py`). `--write` puts the table into tests/bench/RESULTS.md.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from coverage import Coverage

from tests.support.checkout import ROOT

PAGE = ROOT / "tests" / "bench" / "RESULTS.md"
TABLE = re.compile(r"(?<=^\| room \| lines \| reached \|\n\| --- \| --- \| --- \|\n)(\|.*\n)+", re.M)
TESTS = ("tests/unit", "tests/integration")
RUN = ("coverage", "run", "-m", "pytest", "-p", "tests.support.suite.compiled_lines", "-n", "2")
ORDER = ("--dist", "loadfile", "--no-loadscope-reorder")


def room_of(file: Path) -> str:
    """Return the room of a module: the first two folders of its path, or its package where it has no more."""
    return "/".join(file.relative_to(ROOT).parts[:-1][:2])


def measured(data: Path) -> dict[str, tuple[int, int]]:
    """Return {module: (its lines, those that were reached)} from the combined data of coverage."""
    coverage = Coverage(data_file=str(data))
    coverage.load()
    found = {}
    for file in coverage.get_data().measured_files():
        _, lines, _, missing, _ = coverage.analysis2(file)
        found[file] = (len(lines), len(lines) - len(missing))
    return found


def by_room(modules: Mapping[str, tuple[int, int]]) -> dict[str, tuple[int, int]]:
    """Add up the lines of each room."""
    sums: dict[str, tuple[int, int]] = {}
    for file, (lines, reached) in sorted(modules.items()):
        room = room_of(Path(file))
        before = sums.get(room, (0, 0))
        sums[room] = (before[0] + lines, before[1] + reached)
    return sums


def table(rooms: Iterable[tuple[str, tuple[int, int]]]) -> str:
    """Return the rows of a table in Markdown. A share is rounded down, so 100 % leaves no line out."""
    rows = [
        f"| `{room}` | {lines:,} | {1000 * reached // lines / 10:.1f} % |\n"
        for room, (lines, reached) in rooms
        if lines
    ]
    return "".join(rows)


def main(arguments: list[str]) -> int:
    write = "--write" in arguments
    tests = [each for each in arguments if each != "--write"] or TESTS
    directory = ROOT / "build" / "coverage"
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    ended = subprocess.run([sys.executable, "-m", *RUN, *ORDER, *tests], cwd=ROOT, check=False)
    subprocess.run([sys.executable, "-m", "coverage", "combine", "--quiet"], cwd=ROOT, check=True)
    rows = table(by_room(measured(directory / "data")).items())
    sys.stdout.write(rows)
    if write and not ended.returncode:
        PAGE.write_text(TABLE.sub(lambda _: rows, PAGE.read_text("utf-8")), "utf-8")
    return ended.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
