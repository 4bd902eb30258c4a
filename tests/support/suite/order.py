"""The order of test files: the longest first, so that no worker is left with a long one at the end.

`tests/durations.json` has the measured seconds of each file; `--write-durations` measures them anew.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Generator, Mapping

import pytest

from tests.support.checkout import ROOT

DURATIONS = ROOT / "tests" / "durations.json"


def file_of(node_id: str) -> str:
    """Return the path of a test's file, from the root of the checkout."""
    return node_id.partition("::")[0]


def by_seconds(files: list[str], seconds: Mapping[str, float]) -> dict[str, int]:
    """Rank files, the longest first; one that was never measured may be long, so it comes before all."""
    ranked = sorted(set(files), key=lambda file: (-seconds.get(file, math.inf), file))
    return {file: rank for rank, file in enumerate(ranked)}


class Order:
    """A plugin of the workers: hands files out in the order of their seconds, none that takes too many."""

    def __init__(self, most: float | None) -> None:
        self._most = most

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> Generator[None]:
        yield
        seconds = json.loads(DURATIONS.read_text())
        rank = by_seconds([file_of(item.nodeid) for item in items], seconds)
        items.sort(key=lambda item: rank[file_of(item.nodeid)])
        if self._most is not None:
            items[:] = [item for item in items if seconds.get(file_of(item.nodeid), 0) <= self._most]


class Measurement:
    """A plugin of the process that hears of all tests: writes the seconds of the files that ran."""

    def __init__(self) -> None:
        self._seconds: defaultdict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[file_of(report.nodeid)] += report.duration

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        if exitstatus == pytest.ExitCode.OK:
            known = json.loads(DURATIONS.read_text())
            found = {file: known[file] for file in known if (ROOT / file).exists()}
            found |= {file: round(seconds, 1) for file, seconds in self._seconds.items()}
            DURATIONS.write_text(json.dumps(dict(sorted(found.items())), indent=1) + "\n")
