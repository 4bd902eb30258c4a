"""A control plane for a pytest worker, engines behind pods, and what ClickHouse servers are made of."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from tests.fleet import real_parts
from tests.fleet.clickhouse.library import LibraryMissing, fetched, found
from tests.fleet.cluster import Cluster
from tests.fleet.control_plane import ControlPlane
from tests.fleet.real_parts import PartsMissing, Programs


@pytest.fixture(scope="session")
def programs() -> Programs:
    try:
        return real_parts.programs()
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
