"""Goes on with a run that was interrupted: what passed is noted in a file, and left out the next time."""

from __future__ import annotations

from pathlib import Path

import pytest

BEFORE = ".before"
"""Ends the name of the file with what had passed when a run began: all its processes leave out the same."""


def passed_before(path: Path) -> set[str]:
    """Return the node ids of a file; none if there is none."""
    return {*path.read_text().splitlines()} if path.exists() else set()


class LeavingOut:
    """A plugin of each process that collects tests: leaves out what had passed."""

    def __init__(self, path: Path) -> None:
        self._path = path.with_name(path.name + BEFORE)

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        passed = passed_before(self._path)
        left_out = [item for item in items if item.nodeid in passed]
        if left_out:
            config.hook.pytest_deselected(items=left_out)
            items[:] = [item for item in items if item.nodeid not in passed]


class Noting:
    """A plugin of the process that hears of all tests: notes each one that passed from beginning to end."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        before = path.with_name(path.name + BEFORE)
        before.write_text("".join(f"{case}\n" for case in sorted(passed_before(path))))
        self._path = path
        self._called: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and report.passed:
            self._called.add(report.nodeid)
        elif report.when == "teardown" and report.passed and report.nodeid in self._called:
            with self._path.open("a") as notes:
                notes.write(f"{report.nodeid}\n")
