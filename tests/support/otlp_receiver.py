"""An OpenTelemetry receiver: decodes what comes with OpenTelemetry's own protobuf, and answers as told."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsPartialSuccess,
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)

PATH = "/v1/metrics"
Point = tuple[float, int]
"""Value, and time in nanoseconds."""


class Receiver:
    """What came, and what is answered next."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.requests: list[ExportMetricsServiceRequest] = []
        self.headers: list[dict[str, str]] = []
        self.status = 200
        self.answer_headers: dict[str, str] = {}
        self.rejected = 0
        self.drips = threading.Event()
        """While set, an answer comes byte by byte and never ends."""

    def resource(self) -> dict[str, str]:
        (resource,) = self.requests[-1].resource_metrics
        return {each.key: each.value.string_value for each in resource.resource.attributes}

    def units(self) -> dict[str, str]:
        return {metric.name: metric.unit for metric in self._metrics()}

    def points(self) -> dict[tuple[str, frozenset[tuple[str, str]]], Point]:
        """Return the points of the last request by name and attributes."""
        return {
            (
                metric.name,
                frozenset((each.key, each.value.string_value) for each in point.attributes),
            ): (point.as_double, point.time_unix_nano)
            for metric in self._metrics()
            for point in metric.gauge.data_points
        }

    def _metrics(self) -> list:  # type: ignore[type-arg]  # of protobuf's
        return [
            metric
            for resource in self.requests[-1].resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        ]


@contextmanager
def receiver() -> Iterator[Receiver]:
    """Lend a receiver on a free port of the loopback interface."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    server.lent = Receiver(f"http://127.0.0.1:{server.server_port}{PATH}")  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server.lent  # type: ignore[attr-defined]
    finally:
        server.lent.drips.clear()  # type: ignore[attr-defined]
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        lent: Receiver = self.server.lent  # type: ignore[attr-defined]
        body = self.rfile.read(int(self.headers["Content-Length"]))
        assert self.path == PATH
        lent.requests.append(ExportMetricsServiceRequest.FromString(body))
        lent.headers.append({name.lower(): value for name, value in self.headers.items()})
        partial = ExportMetricsPartialSuccess(rejected_data_points=lent.rejected, error_message="too\nold")
        answer = ExportMetricsServiceResponse(partial_success=partial if lent.rejected else None)
        payload = answer.SerializeToString() if lent.status == 200 else b""
        self.send_response(lent.status)
        self.send_header("Content-Type", "application/x-protobuf")
        for name, value in lent.answer_headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(1 << 20 if lent.drips.is_set() else len(payload)))
        self.end_headers()
        while lent.drips.is_set():
            self.wfile.write(b"\0")
            threading.Event().wait(0.02)
        self.wfile.write(payload)

    def log_message(self, format: str, *arguments: object) -> None:
        """Say nothing."""
