"""A control plane for a pytest worker, engines behind pods, and what ClickHouse servers are made of."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from pathlib import Path

import pytest

from tests.fleet import real_parts
from tests.fleet.clickhouse.library import LibraryMissing, fetched, found
from tests.fleet.cluster import Cluster
from tests.fleet.control_plane import ControlPlane
from tests.fleet.real_parts import PartsMissing, Programs


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all-parts", action="store_true", help="what is not tried for want of a part fails")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """With --all-parts, a test that is skipped has failed: nothing is skipped but for want of a part."""
    report = yield
    if report.skipped and item.config.getoption("--all-parts"):
        assert call.excinfo is not None
        report.outcome, report.longrepr = "failed", str(call.excinfo.value)
    return report


@pytest.fixture(scope="session")
def programs() -> Programs:
    try:
        return real_parts.programs(real_parts.KUBERNETES)
    except PartsMissing as error:
        pytest.skip(f"neither Kubernetes nor Helm was tried: {error}")


@pytest.fixture(scope="session")
def library() -> Path:
    try:
        return found() or fetched()
    except LibraryMissing as error:
        pytest.skip(f"no ClickHouse server was tried: {error}")


@pytest.fixture(scope="session")
def plane(
    programs: Programs, tmp_path_factory: pytest.TempPathFactory, free_port: Callable[..., int]
) -> Iterator[ControlPlane]:
    """A running API server; a test that kills it starts it again."""
    running = ControlPlane(programs, tmp_path_factory.mktemp("plane"), free_port)
    running.start()
    yield running
    running.stop()


@pytest.fixture
async def cluster(plane: ControlPlane) -> AsyncIterator[Cluster]:
    async with Cluster(plane) as cluster:
        yield cluster


@pytest.fixture
def say(pytestconfig: pytest.Config) -> Callable[[str], None]:
    """A function that shows a figure, whether the test passes or not."""
    capture = pytestconfig.pluginmanager.getplugin("capturemanager")

    def shown(text: str) -> None:
        with capture.global_and_fixture_disabled():
            sys.stdout.write(f"\n  {text}")

    return shown
