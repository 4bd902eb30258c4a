"""The last release and this version on one cluster: side by side, killed, forward and back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from clickhouse_connect.driver.client import Client

from pipeline.local.broker.embedded import EmbeddedBroker
from pipeline.local.clickhouse.embedded import EmbeddedStore
from tests.fleet.upgrade import wheels
from tests.fleet.upgrade.cluster import VersionsOnOneCluster
from tests.fleet.upgrade.wheels import Version, VersionMissing

EQUAL = 0


@pytest.fixture
def cluster(
    broker: EmbeddedBroker, store: EmbeddedStore, store_client: Client, tmp_path: Path
) -> Iterator[VersionsOnOneCluster]:
    cluster = VersionsOnOneCluster(broker, store, store_client, tmp_path)
    yield cluster
    cluster.close()


def test_forward_and_back_with_workers_side_by_side(
    cluster: VersionsOnOneCluster, tmp_path: Path, say: Callable[[str], None]
) -> None:
    try:
        old = wheels.released(wheels.last_release())
    except VersionMissing as error:
        pytest.skip(f"no older version was tried: {error}")
    new = wheels.of_the_checkout(tmp_path)
    cluster.start_engines()
    cluster.prepare(old)
    columns = cluster.columns()
    connector = cluster.connector(old)
    first, second = cluster.worker(old), cluster.worker(old)
    say(f"{old}: fresh after {cluster.wait_fresh():.1f} s")

    cluster.prepare(new)
    added = cluster.columns() - columns
    third = cluster.worker(new)
    beside = cluster.wait_fresh()
    first.kill()
    fourth = cluster.worker(new)
    second.kill()
    connector.stop()
    connector = cluster.connector(new)
    say(f"forward: fresh after {beside:.1f} s with both, {cluster.wait_fresh():.1f} s with the new one")
    code, findings = cluster.verify(new)
    assert code == EQUAL, findings

    fifth = cluster.worker(old)
    beside = cluster.wait_fresh()
    third.kill()
    fourth.stop()
    connector.kill()
    cluster.connector(old)
    say(f"back: fresh after {beside:.1f} s with both, {cluster.wait_fresh():.1f} s with the old one")
    code, findings = cluster.verify(old)
    assert code == EQUAL, findings
    say(f"columns that the old one does not know: {sorted(found_by(cluster, new, added))}")

    cluster.worker(new)
    fifth.stop()
    say(f"forward again: fresh after {cluster.wait_fresh():.1f} s")
    # Rows that the old one wrote stay as they are.
    say(f"of them missing for that time: {sorted(found_by(cluster, new, added))}")


def found_by(
    cluster: VersionsOnOneCluster, new: Version, added: set[tuple[str, str]]
) -> set[tuple[str, str]]:
    """Return (table, column) of what differs: nothing but what the old version does not know."""
    code, findings = cluster.verify(new)
    found = {
        (difference["table"], column)
        for difference in findings["differences"]
        for column in {**difference["expected"], **difference["found"]}
    }
    assert {difference["kind"] for difference in findings["differences"]} <= {"differs"}, findings
    assert found <= added, findings
    assert bool(found) == bool(code), findings
    return found
