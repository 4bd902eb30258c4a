"""What a worker tells about itself: one catalogue of metrics, and the pages /livez, /readyz and /metrics."""

from __future__ import annotations

from collections.abc import Callable

from aiohttp import web
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

_SECONDS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)


class WorkerMetrics:
    """Every metric of a worker; labels are bounded by configuration, never by traffic."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        agent_partition = ("agent", "partition")
        self.records = Counter(
            "kvlens_worker_records", "Records applied.", agent_partition, registry=registry
        )
        self.skipped = Counter(
            "kvlens_worker_records_skipped",
            "Records not applied: undecodable, or repeated (delivered again and already applied).",
            ("agent", "reason"),
            registry=registry,
        )
        self.lost = Counter(
            "kvlens_worker_records_lost",
            "Records that retention removed before they were read.",
            ("agent",),
            registry=registry,
        )
        self.next_offset = Gauge(
            "kvlens_worker_next_offset", "Offset applied next.", agent_partition, registry=registry
        )
        self.lag = Gauge(
            "kvlens_worker_lag_records", "Records waiting in the topic.", agent_partition, registry=registry
        )
        self.sources = Gauge(
            "kvlens_worker_sources", "Event streams in the state.", agent_partition, registry=registry
        )
        self.troubled = Gauge(
            "kvlens_worker_troubled_sources",
            "Event streams in the state that are partial, degraded, disconnected or drifting.",
            ("agent", "partition", "trouble"),
            registry=registry,
        )
        self.partitions = Gauge(
            "kvlens_worker_partitions", "Partitions owned.", ("agent",), registry=registry
        )
        self.rebalances = Counter(
            "kvlens_worker_rebalances", "Assignments received.", ("agent",), registry=registry
        )
        self.checkpoints = Counter(
            "kvlens_worker_checkpoints", "Transactions committed.", ("agent",), registry=registry
        )
        self.checkpoint_seconds = Histogram(
            "kvlens_worker_checkpoint_seconds",
            "Stages of a checkpoint: cut (blocks the loop), rows, transaction.",
            ("stage",),
            buckets=_SECONDS,
            registry=registry,
        )
        self.checkpoint_timestamp = Gauge(
            "kvlens_worker_checkpoint_timestamp_seconds",
            "When the last checkpoint finished.",
            registry=registry,
        )
        self.holding = Gauge(
            "kvlens_worker_holding", "1 while nothing is applied because saving is slow.", registry=registry
        )
        self.rows = Counter("kvlens_worker_rows", "Rows written.", ("table",), registry=registry)
        self.store_failures = Counter(
            "kvlens_worker_store_failures",
            "Failed calls to ClickHouse; each is repeated.",
            ("step",),
            registry=registry,
        )
        self.rollup_periods = Counter(
            "kvlens_worker_rollup_periods", "Minutes and hours recomputed.", ("table",), registry=registry
        )
        self.rollup_seconds = Histogram(
            "kvlens_worker_rollup_seconds", "One rollup run.", buckets=_SECONDS, registry=registry
        )

    def given_up(self, agent: str, partition: int) -> None:
        """Tell no more of the sources of a partition that another worker may own now."""
        for gauge in (self.sources, self.troubled, self.lag):
            gauge.remove_by_labels({"agent": agent, "partition": str(partition)})


class HealthPages:
    """Serves the pages; answering at all shows that the loop turns."""

    def __init__(self, registry: CollectorRegistry, ready: Callable[[], bool]) -> None:
        """`ready`: partitions are assigned. ClickHouse is left out, the backlog is safe in Kafka."""
        self._registry = registry
        self._ready = ready
        self._runner: web.AppRunner | None = None

    async def start(self, port: int, host: str) -> None:
        """Listen on all interfaces unless told otherwise. Raises OSError when the port is taken."""
        app = web.Application()
        app.router.add_get("/livez", self._livez)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/metrics", self._metrics)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, host, port).start()

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _livez(self, request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _readyz(self, request: web.Request) -> web.Response:
        if self._ready():
            return web.Response(text="ok\n")
        return web.Response(status=503, text="waiting for partitions\n")

    async def _metrics(self, request: web.Request) -> web.Response:
        return web.Response(
            body=generate_latest(self._registry), headers={"Content-Type": CONTENT_TYPE_LATEST}
        )
