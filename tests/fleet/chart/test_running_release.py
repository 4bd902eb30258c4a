"""A release whose pods run: real processes, API server, Kafka and ClickHouse's engine; simulated engines."""

from __future__ import annotations

import asyncio
import copy
import secrets
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq
from clickhouse_connect.driver.client import Client

from pipeline.local.broker.embedded import EmbeddedBroker
from pipeline.local.clickhouse.embedded import EmbeddedStore
from tests.fleet.chart.helm import HelmFailed
from tests.fleet.chart.kubelet import Kubelet
from tests.fleet.chart.node import Node
from tests.fleet.chart.release import Release
from tests.fleet.cluster import Cluster
from tests.fleet.control_plane import ControlPlane
from tests.fleet.engines import PodEngine
from tests.fleet.real_parts import Programs

LABELS = {"llm-d.ai/role": "decode", "llm-d.ai/model": "qwen"}
ENGINES = {f"decode-{number}": f"127.0.3.{number + 1}" for number in range(4)}
TOKEN = "as long as it has to be"
SECONDS = 300.0


class Fleet:
    """Engines behind pods, a release, and the tables."""

    def __init__(self, release: Release, node: Node, client: Client, values: dict[str, Any]) -> None:
        self.release, self.node, self.client, self.values = release, node, client, values
        self.engines: dict[str, PodEngine] = {}
        self.database = values["config"]["clickhouse"]["database"]

    def published(self, batches: int) -> None:
        for engine in self.engines.values():
            engine.publish(batches)

    def stored(self) -> dict[str, int]:
        rows = self.client.query(
            f"SELECT replica, sum(stored_blocks) FROM {self.database}.flow_10s FINAL GROUP BY replica"
        ).result_rows
        return {str(replica): int(blocks) for replica, blocks in rows}

    async def until_stored(self, blocks: int) -> None:
        await self.until(lambda: self.stored() == dict.fromkeys(ENGINES, blocks), self.stored)

    async def until_read(self) -> None:
        await self.until(lambda: all(each.publisher.subscribers for each in self.engines.values()))

    async def until(self, reached: Callable[[], bool], said: Callable[[], object] = lambda: "") -> None:
        deadline = time.monotonic() + SECONDS
        while not await asyncio.to_thread(reached):
            assert time.monotonic() < deadline, f"{said()}\n{self.node.logs()}"
            await asyncio.sleep(0.2)


@pytest.fixture
def fleet(
    plane: ControlPlane,
    programs: Programs,
    kubelet: Kubelet,
    broker: EmbeddedBroker,
    store: EmbeddedStore,
    store_client: Client,
    tmp_path: Path,
    free_port: Callable[[], int],
    context: zmq.Context[zmq.Socket[bytes]],
) -> Iterator[Fleet]:
    namespace = f"running-{secrets.token_hex(4)}"
    kubelet.left_alone.add(namespace)
    release = Release(plane, programs, tmp_path, namespace)
    release.make_namespace(namespace)
    release.secret("kvlens-page", token=TOKEN)
    values = {
        "config": {
            "kafka": {"bootstrap_servers": broker.bootstrap_servers, "topic_prefix": namespace},
            "clickhouse": {"url": store.url, "database": namespace.replace("-", "_")},
            "connector": {"linger_seconds": 0.02},
            "discovery": {
                "kubernetes": [
                    {
                        "preset": "llm-d",
                        "namespaces": [f"{namespace}-engines"],
                        "api_url": plane.other_url,
                        "ca_file": str(plane.ca_file),
                        "token_file": str(tmp_path / "token"),
                    }
                ]
            },
        },
        "connector": {"shards": 2, "metricsPort": free_port()},
        "worker": {"replicas": 2, "metricsPort": free_port()},
        "serve": {"port": free_port()},
        "prepare": {"backoffLimit": 0},
    }
    with Node(plane, namespace, tmp_path / "node", tmp_path / "token") as node:
        fleet = Fleet(release, node, store_client, values)
        fleet.engines = {name: PodEngine(context, address) for name, address in ENGINES.items()}
        yield fleet
    for engine in fleet.engines.values():
        engine.close()
    release.helm("uninstall", "kvlens", "--ignore-not-found", "--no-hooks")
    release.kubectl("delete", "pods", "--all", "--force", "--namespace", namespace)
    store_client.command(f"DROP DATABASE IF EXISTS {fleet.database} SYNC")


async def test_upgrade_failed_upgrade_and_rollback_lose_nothing(fleet: Fleet, cluster: Cluster) -> None:
    release, engines = fleet.release, f"{fleet.release.namespace}-engines"
    await cluster.namespace(engines)
    for name, address in ENGINES.items():
        await cluster.pod(engines, name, address, LABELS)
    await asyncio.to_thread(release.install, fleet.values)
    await fleet.until_read()
    fleet.published(20)
    await fleet.until_stored(20)

    (serve,) = release.pods("serve")
    (pod,) = release.found("pods", serve)
    page = f"http://{pod['status']['podIP']}:{fleet.values['serve']['port']}/fleet/metrics"
    with pytest.raises(urllib.error.HTTPError, match="401"):
        await asyncio.to_thread(asked, page, {})
    assert "kvlens_fleet_" in await asyncio.to_thread(asked, page, {"Authorization": f"Bearer {TOKEN}"})

    changed = copy.deepcopy(fleet.values)
    changed["config"]["worker"] = {"checkpoint_seconds": 0.5}
    fleet.published(20)
    before = release.pods("connector") | release.pods("worker")
    await asyncio.to_thread(release.upgrade, changed)
    assert set(before.values()).isdisjoint((release.pods("connector") | release.pods("worker")).values())
    fleet.published(20)
    await fleet.until_stored(60)

    wrong = copy.deepcopy(changed)
    wrong["config"]["clickhouse"]["username"] = "nobody"
    before = release.pods("connector") | release.pods("worker")
    with pytest.raises(HelmFailed, match="pre-upgrade hooks failed"):
        await asyncio.to_thread(release.upgrade, wrong)
    assert release.pods("connector") | release.pods("worker") == before
    fleet.published(20)
    await fleet.until_stored(80)

    await asyncio.to_thread(release.helm, "rollback", "kvlens", "1", "--wait", "--timeout", "300s")
    fleet.published(20)
    await fleet.until_stored(100)
    lost = fleet.client.query(
        f"SELECT sum(lost_batches), sum(undecodable_events) FROM {fleet.database}.stream_health_10s FINAL"
    ).result_rows
    assert lost == [(0, 0)]


def asked(url: str, headers: dict[str, str]) -> str:
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=60) as answer:
        return str(answer.read(), "utf-8")
