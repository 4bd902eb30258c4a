"""The Compose file runs: three brokers, ClickHouse and kvlens in containers on a network of their own."""

from __future__ import annotations

import urllib.error
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.fleet.compose.installation import Composed, missing

ENGINES = 3


@pytest.fixture(scope="module")
def composed(
    library: Path, tmp_path_factory: pytest.TempPathFactory, free_port: Callable[..., int]
) -> Iterator[Composed]:
    if (lacking := missing()) is not None:
        pytest.skip(f"the Compose file was not run: {lacking}")
    composed = Composed(tmp_path_factory.mktemp("compose"), library, free_port)
    composed.build()
    try:
        composed.up()
        yield composed
    finally:
        composed.down()


def test_all_of_it_runs_and_a_broker_may_be_lost(composed: Composed, say: Callable[[str], None]) -> None:
    say(f"fresh {composed.wait_fresh(ENGINES):.0f} s after everything was started")
    for service in ("kafka-1", "kafka-2", "kafka-3", "clickhouse"):
        composed.run("podman", "healthcheck", "run", composed.container(service))
    for service in ("topics", "tables"):
        assert composed.state(service)["ExitCode"] == 0, composed.said(service)
    assert composed.get("index", "/replicas", "INDEX_TOKEN")
    models = composed.get("serve", "/api/choices", "PAGE_TOKEN")
    assert "simulated" in str(models)
    with pytest.raises(urllib.error.HTTPError, match="401"):
        composed.get("serve", "/api/choices", "INDEX_TOKEN")

    composed.run("podman", "kill", "--signal=KILL", composed.container("kafka-2"))
    say(f"a broker killed: fresh after {composed.wait_fresh(ENGINES):.1f} s")
    composed.run("podman", "start", composed.container("kafka-2"))
    say(f"and {composed.wait_fresh(ENGINES):.1f} s after its return")

    composed.rename_last_replica("renamed")
    say(f"the settings edited: rows of the new name after {composed.wait_known(ENGINES + 1):.1f} s")

    composed.run("podman", "stop", "--time=15", composed.container("connect"))
    assert composed.state("connect")["ExitCode"] == 0
    assert "the tables are what the log says" in composed.kvlens("work", "verify")
    composed.run("podman", "stop", "--time=15", composed.container("work"))
    assert composed.state("work")["ExitCode"] == 0
