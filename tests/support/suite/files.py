"""Parallel runs hand out files, and only who runs a file imports it.

pytest-xdist has each of its processes collect all tests, which takes 20 s of processor time here, in every
one of them. In such a process a file is a single item instead, collected when its turn comes; its cases then
run and are reported like any others. Where a case is asked for by its name, everything is collected as usual.
"""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest
from _pytest.runner import collect_one_node
from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

from tests.support.suite.order import file_of


class FileOfCases(pytest.Module):
    """A file that is not imported until `opened`; until then it has one item, for all its cases."""

    opened = False

    def _getobj(self) -> Any:
        try:
            return super()._getobj()
        except SystemError:
            # Python 3.11 counts the depth of ast.parse for all threads together, and one of an earlier test
            # may be compiling: https://github.com/python/cpython/issues/106905
            for name, module in list(sys.modules.items()):
                if getattr(module, "__file__", None) == str(self.path):
                    del sys.modules[name]
            return super()._getobj()

    def collect(self) -> Any:
        return super().collect() if self.opened else [AllCases.from_parent(self, name="all cases")]


class AllCases(pytest.Item):
    """All cases of a file, for those who hand files out."""

    def cases(self) -> list[pytest.Item]:
        """Import the file; return its cases that are to run, in order. That it cannot be is reported."""
        file, session = self.parent, self.session
        assert isinstance(file, FileOfCases)
        file.opened = True
        report = collect_one_node(file)
        file.ihook.pytest_collectreport(report=report)
        found = [item for node in report.result or () for item in session.genitems(node)]
        self.config.hook.pytest_collection_modifyitems(session=session, config=self.config, items=found)
        return found

    def runtest(self) -> None:
        raise AssertionError("its cases run instead")


class Files:
    """A plugin of the processes that run tests."""

    def pytest_pycollect_makemodule(self, module_path: Path, parent: pytest.Collector) -> FileOfCases:
        return FileOfCases.from_parent(parent, path=module_path)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> Generator[None]:
        """Keep files from what chooses cases by name or mark: that is asked about their cases."""
        files = [item for item in items if isinstance(item, AllCases)]
        if not files:
            return (yield)
        items[:] = []
        yield
        items[:] = files
        return None

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
        if not isinstance(item, AllCases):
            return None
        items = item.session.items
        place = items.index(item)
        cases = item.cases()
        for case, following in zip_longest(cases, cases[1:], fillvalue=nextitem):
            # xdist expects reports of the item that it gave out.
            items[place] = case
            item.config.hook.pytest_runtest_protocol(item=case, nextitem=following)
            if item.session.shouldfail or item.session.shouldstop:
                break
        items[place] = item
        if not cases:
            # What the case before left set up for this file is of no use to the next one.
            item.session._setupstate.teardown_exact(nextitem)
        return True


class FileByFile(LoadFileScheduling):
    """Hands files out. One whose process died is not begun again, and the case that it was at is named."""

    def __init__(self, config: pytest.Config, log: Any, running: dict[str, str]) -> None:
        super().__init__(config, log)
        self._running = running

    def remove_node(self, node: WorkerController) -> str | None:
        fallen = next(self._unfinished(node), None)
        if fallen is None:
            return super().remove_node(node)
        unit, file = fallen
        case = self._running.get(file_of(file), file)
        # At once: where a run is ended from outside, nobody reads its summary.
        sys.stderr.write(f"\n{node.gateway.id} died while running {case}\n")
        # What came after it in its file is not run either: nobody knows what the dead process left. Files
        # that it had done, pytest-xdist 3.8 would give to others, who then wait for cases that never come.
        work = self.assigned_work[node]
        del work[unit]
        for done in [one for one, cases in work.items() if all(cases.values())]:
            del work[done]
        super().remove_node(node)
        return case

    def schedule(self) -> None:
        """Begin; later, give work to a process that took the place of a dead one.

        It gets two files, as all do at the beginning: one is not begun before it has the next, or is told
        that none comes (in pytest-xdist 3.8 it gets one, and waits).
        """
        super().schedule()
        for node in self.nodes:
            self._reschedule(node)

    def _reschedule(self, node: WorkerController) -> None:
        # One that is still collecting, in the place of a dead one, gets its files when it has.
        if node in self.registered_collections:
            super()._reschedule(node)

    def _unfinished(self, node: WorkerController) -> Iterator[tuple[str, str]]:
        for unit, cases in self.assigned_work[node].items():
            for case, done in cases.items():
                if not done:
                    yield unit, case


class Handing:
    """A plugin of the process that hands files out."""

    def __init__(self) -> None:
        self._running: dict[str, str] = {}

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._running[file_of(nodeid)] = nodeid

    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Any) -> FileByFile:
        return FileByFile(config, log, self._running)


def can_be_handed_out(config: pytest.Config) -> bool:
    """Tell whether files are all that is asked for: no single cases, none that failed before."""
    return not (
        any("::" in argument for argument in config.args)
        or config.getoption("lf", False)
        or config.getoption("failedfirst", False)
    )
