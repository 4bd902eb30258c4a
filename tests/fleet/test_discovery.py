"""A connector finds engines by the labels of their pods: real kube-apiserver, real sockets, real Kafka."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zmq

from connectors.discovery.kubernetes.origin import PodOrigin
from pipeline.local.broker.embedded import EmbeddedBroker
from schemas.settings import Settings
from tests.fleet.cluster import Cluster
from tests.fleet.control_plane import ControlPlane
from tests.fleet.engines import PodEngine
from tests.fleet.reading import connector
from tests.support.pods import Told

LABELS = {"llm-d.ai/role": "decode", "llm-d.ai/model": "qwen"}
PODS = 1_000
Say = Callable[[str], None]


class World:
    """A namespace with a connector's ServiceAccount, and engines behind some of its pods."""

    def __init__(
        self,
        plane: ControlPlane,
        cluster: Cluster,
        broker: EmbeddedBroker,
        directory: Path,
        metrics_port: int,
        context: zmq.Context[zmq.Socket[bytes]],
    ) -> None:
        self.plane = plane
        self.cluster = cluster
        self.namespace = f"fleet-{secrets.token_hex(4)}"
        self.token = ""
        self._broker = broker
        self._directory = directory
        self._metrics_port = metrics_port
        self._context = context
        self._engines: list[PodEngine] = []

    async def prepare(self) -> None:
        await self.cluster.namespace(self.namespace)
        self.token = await self.cluster.account(self.namespace, "connector", ["list", "watch"])
        (self._directory / "token").write_text(self.token)

    def engine(self, number: int, **told: Any) -> PodEngine:
        """Start an engine at the address of a pod."""
        engine = PodEngine(self._context, f"127.0.1.{number}", **told)
        self._engines.append(engine)
        return engine

    async def pod(self, name: str, number: int, **told: Any) -> str:
        return await self.cluster.pod(self.namespace, name, f"127.0.1.{number}", LABELS, **told)

    def settings(self, **entry: Any) -> Settings:
        return msgspec.convert(
            {
                "kafka": {
                    "bootstrap_servers": self._broker.bootstrap_servers,
                    "topic_prefix": self.namespace,
                },
                "connector": {"metrics_port": self._metrics_port, "linger_seconds": 0.02},
                "discovery": {
                    "kubernetes": [
                        {
                            "preset": "llm-d",
                            "namespaces": [self.namespace],
                            "api_url": self.plane.url,
                            "ca_file": str(self.plane.ca_file),
                            "token_file": str(self._directory / "token"),
                            "max_replicas": 2 * PODS,
                            **entry,
                        }
                    ]
                },
            },
            Settings,
        )

    async def metric(self, name: str) -> float:
        """The sum of a metric; `name` may go on with labels."""
        url = f"http://127.0.0.1:{self._metrics_port}/metrics"
        page = await asyncio.to_thread(lambda: urllib.request.urlopen(url, timeout=10).read().decode())
        return sum(float(line.rsplit(" ", 1)[1]) for line in page.splitlines() if line.startswith(name))

    async def until_metric(self, name: str, reached: Callable[[float], bool], seconds: float = 60) -> None:
        deadline = time.monotonic() + seconds
        while True:
            with contextlib.suppress(urllib.error.URLError):  # which it is until the connector has begun
                if reached(await self.metric(name)):
                    return
            assert time.monotonic() < deadline, f"{name} is not what it should be"
            await asyncio.sleep(0.1)

    async def until_sources(self, count: int, seconds: float = 60) -> None:
        await self.until_metric("kvlens_connector_sources{", lambda found: found == count, seconds)

    async def until_subscribed(self, engine: PodEngine) -> None:
        deadline = time.monotonic() + 60
        while not await asyncio.to_thread(lambda: engine.publisher.subscribers):
            assert time.monotonic() < deadline, "nobody subscribed"
            await asyncio.sleep(0.05)

    def close(self) -> None:
        for engine in self._engines:
            engine.close()


@pytest.fixture
async def world(
    plane: ControlPlane,
    cluster: Cluster,
    broker: EmbeddedBroker,
    tmp_path: Path,
    free_port: Callable[[], int],
    context: zmq.Context[zmq.Socket[bytes]],
) -> AsyncIterator[World]:
    world = World(plane, cluster, broker, tmp_path, free_port(), context)
    await world.prepare()
    yield world
    world.close()


async def test_the_account_of_the_docs_may_list_and_watch_pods_and_nothing_else(world: World) -> None:
    pods = f"/api/v1/namespaces/{world.namespace}/pods"
    allowed = {
        (method, path): await world.cluster.allowed(world.token, path, method)
        for method, path in (
            ("GET", pods),
            ("GET", f"{pods}?watch=1&timeoutSeconds=1"),
            ("GET", f"{pods}/any"),
            ("GET", "/api/v1/pods"),
            ("GET", "/api/v1/namespaces/default/pods"),
            ("GET", f"/api/v1/namespaces/{world.namespace}/secrets"),
            ("DELETE", f"{pods}/any"),
            ("PATCH", f"{pods}/any"),
        )
    }
    assert [*allowed.values()] == [200, 200, 403, 403, 403, 403, 403, 403]


async def test_engines_are_read_from_their_first_batch_to_the_end_of_their_pods(world: World) -> None:
    told, named = world.engine(1), world.engine(2, port=5556, tells=False)
    await world.pod("told", 1)
    await world.pod("named", 2, ports={"kv-events": 5556}, annotations={"kvlens/replay-port": "5656"})
    async with connector(world.settings()) as log:
        for engine in (told, named):
            await world.until_subscribed(engine)
            engine.publish(5)
        await log.until(lambda: log.numbers("told") == log.numbers("named") == [*range(5)])
        assert {record.model for record in log.records} == {"qwen"}

        # Not ready, for a while: nothing happens.
        await world.cluster.ready(world.namespace, "told", False)
        late = world.engine(3)
        await world.pod("late", 3)
        await world.until_subscribed(late)
        late.publish(2)
        await world.cluster.ready(world.namespace, "told", True)
        await log.until(lambda: log.numbers("late") == [0, 1])
        assert log.notices("told") == ["opened"]

        # Deleted, without its label, ended: each is closed once.
        await world.cluster.delete(world.namespace, "told")
        await world.cluster.label(world.namespace, "named", {"llm-d.ai/role": None})
        await world.cluster.status(world.namespace, "late", {"phase": "Failed"})
        await log.until(
            lambda: all(log.notices(name) == ["opened", "removed"] for name in ("told", "named", "late"))
        )
        await world.until_sources(0)

        # Its label again: the same pod, another life in the log.
        await world.cluster.label(world.namespace, "named", {"llm-d.ai/role": "prefill"})
        await log.until(lambda: log.notices("named") == ["opened", "removed", "opened"])
        named.publish(2)
        await log.until(lambda: log.numbers("named")[-2:] == [5, 6])
        assert log.incarnations("named") == 2


async def test_a_stateful_pod_made_again_under_its_name_is_a_new_life_of_the_same_replica(
    world: World,
) -> None:
    engine = world.engine(1)
    first = await world.pod("vllm-0", 1)
    async with connector(world.settings()) as log:
        await world.until_subscribed(engine)
        engine.publish(3)
        await log.until(lambda: log.numbers("vllm-0") == [0, 1, 2])
        # Before the connector's eyes.
        await world.cluster.delete(world.namespace, "vllm-0")
        engine.close()
        await log.until(lambda: log.notices("vllm-0") == ["opened", "removed"])
        engine = world.engine(1)
        second = await world.pod("vllm-0", 1)
        await world.until_subscribed(engine)
        engine.publish(2)
        await log.until(lambda: log.numbers("vllm-0") == [0, 1, 2, 0, 1])

        # Unseen, at the same address and with a sequence that goes on where the former life ended.
        world.plane.kill_server()
        await world.until_metric("kvlens_connector_kubernetes_failures_total{", lambda found: found > 0)
        engine.publish(1)
        await log.until(lambda: log.numbers("vllm-0")[-1] == 2)
        await world.cluster.delete(world.namespace, "vllm-0")
        third = await world.pod("vllm-0", 1)
        await asyncio.to_thread(world.plane.start_server)
        await log.until(lambda: log.notices("vllm-0")[-1] == "restarted")
        await world.until_subscribed(engine)
        engine.publish(1)
        await log.until(lambda: log.numbers("vllm-0")[-1] == 3)
        assert log.notices("vllm-0") == ["opened", "removed", "opened", "restarted", "opened"]
        assert log.incarnations("vllm-0") == 3
        assert len({first, second, third}) == 3


async def test_a_pod_made_again_while_no_connector_ran_is_a_new_life(world: World) -> None:
    engine = world.engine(1)
    await world.pod("vllm-0", 1)
    async with connector(world.settings()) as log:
        await world.until_subscribed(engine)
        engine.publish(3)
        await log.until(lambda: log.numbers("vllm-0") == [0, 1, 2])
    await world.cluster.delete(world.namespace, "vllm-0")
    await world.pod("vllm-0", 1)
    # The same engine goes on behind it, so that nothing but the UID tells.
    async with connector(world.settings()) as log:
        await log.until(lambda: log.notices("vllm-0") == ["opened", "restarted"])
        await world.until_subscribed(engine)
        engine.publish(1)
        await log.until(lambda: log.numbers("vllm-0")[-1] == 3)
        assert log.notices("vllm-0") == ["opened", "restarted", "opened"]
        assert log.incarnations("vllm-0") == 2
    # And once more without anything new: it goes on.
    async with connector(world.settings()) as log:
        await log.until(lambda: log.numbers("vllm-0")[-1:] == [3])
        await world.until_subscribed(engine)
        engine.publish(1)
        await log.until(lambda: log.numbers("vllm-0")[-1] == 4)
        assert log.notices("vllm-0") == ["opened", "restarted", "opened"]


async def test_what_happens_while_the_api_server_is_away_is_made_up_for(world: World, say: Say) -> None:
    stays, goes = world.engine(1), world.engine(2)
    await world.pod("stays", 1)
    await world.pod("goes", 2)
    async with connector(world.settings()) as log:
        for engine in (stays, goes):
            await world.until_subscribed(engine)
            engine.publish(2)
        await log.until(lambda: log.numbers("stays") == log.numbers("goes") == [0, 1])
        world.plane.kill_server()
        await world.until_metric("kvlens_connector_kubernetes_failures_total{", lambda found: found >= 2)
        # Nothing is taken away, and both go on.
        for engine in (stays, goes):
            engine.publish(1)
        await log.until(lambda: log.numbers("stays") == log.numbers("goes") == [0, 1, 2])
        await world.cluster.delete(world.namespace, "goes")
        comes = world.engine(3)
        await world.pod("comes", 3)
        began = time.monotonic()
        await asyncio.to_thread(world.plane.start_server)
        started = time.monotonic()
        await log.until(lambda: log.notices("goes") == ["opened", "removed"])
        await world.until_subscribed(comes)
        say(f"server up after {started - began:.1f} s, caught up {time.monotonic() - started:.1f} s later")
        comes.publish(1)
        await log.until(lambda: log.numbers("comes") == [0])
        assert log.notices("stays") == ["opened"]


async def test_a_version_that_was_compacted_away_lists_again(world: World) -> None:
    engine = world.engine(1)
    await world.pod("a", 1)
    told = Told()
    (entry,) = world.settings(http_port=0).discovery.kubernetes
    origin = PodOrigin(0, entry, lambda replica: True, told)
    await origin.begin()
    # The origin is to watch from the version of its list, which is not there any more.
    await world.cluster.delete(world.namespace, "a")
    await world.pod("b", 1)
    await asyncio.to_thread(world.plane.kill_server)
    await asyncio.to_thread(world.plane.compact)
    await asyncio.to_thread(world.plane.start_server)
    following = asyncio.create_task(origin.follow(lambda: None))
    try:
        deadline = time.monotonic() + 60
        while {source.replica for source in origin.sources} != {"b"}:
            assert time.monotonic() < deadline, (told.failures, told.texts)
            await asyncio.sleep(0.1)
        assert "expired" in told.failures
    finally:
        following.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await following
    engine.publish(1)


async def test_a_thousand_pods(world: World, say: Say) -> None:
    engines = {f"pod-{number}": world.engine(number + 1, tells=False, port=5557) for number in range(8)}
    turns = asyncio.Semaphore(16)

    async def made(number: int) -> None:
        async with turns:
            host = f"127.0.{1 + number // 200}.{1 + number % 200}"
            await world.cluster.pod(world.namespace, f"pod-{number}", host, LABELS)

    began = time.monotonic()
    await asyncio.gather(*(made(number) for number in range(PODS)))
    say(f"{PODS} pods made in {time.monotonic() - began:.1f} s")
    began = time.monotonic()
    async with connector(world.settings(http_port=0)) as log:
        await world.until_sources(PODS)
        say(f"{PODS} pods listed and read after {time.monotonic() - began:.1f} s")
        for engine in engines.values():
            await world.until_subscribed(engine)
            engine.publish(3)
        await log.until(lambda: all(log.numbers(name) == [0, 1, 2] for name in engines))
        # Every second pod goes, others come, and the server is lost in the midst of it.
        began = time.monotonic()
        gone = [number for number in range(PODS) if number % 2 and number >= 8]

        async def deleted(number: int) -> None:
            async with turns:
                await world.cluster.delete(world.namespace, f"pod-{number}")

        half = len(gone) // 2
        await asyncio.gather(*(deleted(number) for number in gone[:half]))
        world.plane.kill_server()
        await asyncio.gather(*(deleted(number) for number in gone[half:]))
        await asyncio.gather(*(made(number) for number in range(PODS, PODS + 50)))
        await asyncio.to_thread(world.plane.start_server)
        await world.until_sources(PODS - len(gone) + 50)
        say(f"{len(gone)} gone and 50 come after {time.monotonic() - began:.1f} s")
        for engine in engines.values():
            engine.publish(1)
        await log.until(lambda: all(log.numbers(name) == [0, 1, 2, 3] for name in engines))
        assert all(log.notices(name) == ["opened"] for name in engines)
