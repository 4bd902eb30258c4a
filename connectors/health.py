"""The connector's own HTTP endpoint: /livez, /readyz and Prometheus' /metrics."""

from __future__ import annotations

from collections.abc import Callable

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest


class PortUnavailable(Exception):
    """The endpoint cannot listen on its port."""

    def __init__(self, port: int, reason: str) -> None:
        super().__init__(port, reason)
        self.port = port
        self.reason = reason

    def __str__(self) -> str:
        return f"cannot listen on connector.metrics_port {self.port}: {self.reason}; choose another one"


class HealthEndpoint:
    """Serves while the event loop runs, which is what /livez says; /readyz says what `ready` returns."""

    def __init__(self, host: str, port: int, registry: CollectorRegistry, ready: Callable[[], bool]) -> None:
        self._host = host
        self._port = port
        self._registry = registry
        self._ready = ready
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        """Raises PortUnavailable."""
        application = web.Application()
        application.add_routes(
            [
                web.get("/livez", self._livez),
                web.get("/readyz", self._readyz),
                web.get("/metrics", self._metrics),
            ]
        )
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=1.0)
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, self._host, self._port).start()
        except OSError as error:
            await self.stop()
            raise PortUnavailable(self._port, error.strerror or str(error)) from error

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _livez(self, _request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _readyz(self, _request: web.Request) -> web.Response:
        if self._ready():
            return web.Response(text="ok\n")
        return web.Response(text="Kafka does not keep up or cannot be reached\n", status=503)

    async def _metrics(self, _request: web.Request) -> web.Response:
        return web.Response(
            body=generate_latest(self._registry), headers={"Content-Type": CONTENT_TYPE_LATEST}
        )
