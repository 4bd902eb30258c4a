"""Posts the fleet's figures to an OpenTelemetry receiver, each range once, and holds up nothing else."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import requests
import structlog
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics.export import MetricsData
from opentelemetry.sdk.resources import OTELResourceDetector, Resource

from connectors.process.errors import OperatorError
from connectors.process.leaving import aside
from connectors.process.limited_log import LogLimiter
from connectors.process.registry import Registry
from pipeline.otlp.answer import Sent, judged
from pipeline.otlp.points import metrics_data, range_end
from schemas.metrics import Otlp
from schemas.reasons import OtlpOutcome

EVERY_SECONDS = 30.0
"""Seconds between two checks for a new range; there is one a minute."""
TIMEOUT_SECONDS = 10.0
"""Seconds for a range, including the exporter's own retries."""

_log = structlog.get_logger(__name__)
# The exporter also returns its failures, and our own warning below says why; nothing else in a process of
# ours uses this logger.
logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)


class Push:
    """Posts the newest range and keeps none: an older one that did not get through is not sent again."""

    def __init__(
        self,
        endpoint: str,
        figures: Callable[[], Awaitable[Registry]],
        registry: Registry,
        *,
        instance: str = "",
        timeout: float = TIMEOUT_SECONDS,
    ) -> None:
        """`figures` may raise OperatorError; `registry` gets the counter.

        `instance` distinguishes processes that report different figures.
        """
        self._endpoint = endpoint
        self._figures = figures
        self._exports = registry.counter(Otlp.exports)
        self._timeout = timeout
        self._session = _Session()
        self._exporter = OTLPMetricExporter(endpoint, timeout=timeout, session=self._session)
        named = {"service.name": "kvlens"} | ({"service.instance.id": instance} if instance else {})
        # Attributes from the environment are added, and override these.
        self._resource = Resource.create(named).merge(OTELResourceDetector().detect())
        self._settled = float("-inf")
        self._sending: asyncio.Future[Any] | None = None
        self._limiter = LogLimiter()
        self._failing = False

    async def run(self) -> None:
        """Post until cancelled."""
        try:
            while True:
                await self.look()
                await asyncio.sleep(EVERY_SECONDS)
        finally:
            self._exporter.shutdown()

    async def look(self) -> None:
        """Post the newest range unless it is settled, and count the outcome."""
        try:
            families = [*(await self._figures()).collect()]
        except OperatorError as error:
            self._record("no_figures", str(error))
            return
        end = range_end(families)
        if end is None or end <= self._settled:
            return
        if self._sending is not None and not self._sending.done():
            self._record("slow", "it still answers what was sent before")
            return
        sent = await self._sent(metrics_data(families, self._resource))
        if sent.settled:
            self._settled = end
        self._record(sent.outcome, sent.reason)

    async def _sent(self, data: MetricsData) -> Sent:
        self._session.begin()
        self._sending = asyncio.ensure_future(aside(lambda: self._exporter.export(data)))
        done, _ = await asyncio.wait([self._sending], timeout=self._timeout)
        if not done:
            return Sent("slow", f"no whole answer in {self._timeout:g} s", settled=False)
        return judged(self._session.answer, self._session.failure, self._timeout)

    def _record(self, outcome: OtlpOutcome, reason: str) -> None:
        self._exports.labels(outcome).inc()
        if outcome == "accepted":
            if self._failing:
                _log.info("the OTLP receiver takes figures", address=self._endpoint)
            self._failing = False
            return
        self._failing = True
        if (suppressed := self._limiter.admit(outcome)) is not None:
            _log.warning(
                "figures did not get to the OTLP receiver",
                address=self._endpoint,
                outcome=outcome,
                reason=reason,
                **suppressed,
            )


class _Session(requests.Session):
    """Keeps the answer or error of the last request; the exporter itself returns only that it failed."""

    def begin(self) -> None:
        self.answer: requests.Response | None = None
        self.failure: Exception | None = None

    def request(self, *arguments: Any, **named: Any) -> requests.Response:
        self.begin()
        try:
            self.answer = super().request(*arguments, **named)
        except Exception as error:
            self.failure = error
            raise
        return self.answer
