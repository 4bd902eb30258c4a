"""What a process serves about itself: /livez, /readyz, Prometheus' /metrics, and metrics on other paths."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from connectors.process.listening import listening


class HealthPages:
    """Answers while the event loop runs, which is what /livez shows; /readyz says what `unready` returns."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        setting: str,
        registry: CollectorRegistry,
        unready: Callable[[], str | None],
        more: Mapping[str, Callable[[], CollectorRegistry]] | None = None,
    ) -> None:
        """`setting` names the port's setting; `unready` returns one line, why it is not ready, or None.

        `more`: other pages of metrics, by path. Port 0 turns the pages off.
        """
        self._host = host
        self._port = port
        self._setting = setting
        self._registry = registry
        self._unready = unready
        self._more = more or {}
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        """Begin to serve. Raises PortUnavailable."""
        if not self._port:
            return
        application = web.Application()
        application.add_routes(
            [
                web.get("/livez", self._livez),
                web.get("/readyz", self._readyz),
                web.get("/metrics", self._metrics),
                *(web.get(path, self._other) for path in self._more),
            ]
        )
        self._runner = await listening(application, self._host, self._port, setting=self._setting)

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _livez(self, _request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _readyz(self, _request: web.Request) -> web.Response:
        reason = self._unready()
        if reason is None:
            return web.Response(text="ok\n")
        return web.Response(text=f"{reason}\n", status=503)

    async def _metrics(self, _request: web.Request) -> web.Response:
        return _exposed(self._registry)

    async def _other(self, request: web.Request) -> web.Response:
        return _exposed(self._more[request.path]())


def _exposed(metrics: CollectorRegistry) -> web.Response:
    return web.Response(body=generate_latest(metrics), headers={"Content-Type": CONTENT_TYPE_LATEST})
