"""Simulated engines with addresses of their own, as pods have: a loopback address each."""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import msgspec
import zmq

from pipeline.simulator.publisher import Publisher, PublisherSettings
from tests.support.engines import stored

HTTP_PORT = 8000


class PodEngine:
    """An engine with PUB and ROUTER sockets, which tells at `/kv_event_sources` where they are."""

    def __init__(
        self, context: zmq.Context[zmq.Socket[bytes]], host: str, port: int = 0, *, tells: bool = True
    ) -> None:
        """`port` 0 takes any free ones."""
        self.host = host
        self._context = context
        self._stored = 0
        self.publisher = Publisher(
            PublisherSettings(f"tcp://{host}:{port}", f"tcp://{host}:{port + 100 if port else 0}"), context
        )
        self._http = _serve(host, self.publisher) if tells else None
        self._closed = False

    def publish(self, batches: int) -> None:
        """Each batch stores a block that was never there."""
        for _ in range(batches):
            self._stored += 1
            self.publisher.publish(msgspec.msgpack.encode([time.time(), [stored(self._stored)], 0]))

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._http is not None:
            self._http.shutdown()
            self._http.server_close()
        self.publisher.close()


def _serve(host: str, publisher: Publisher) -> ThreadingHTTPServer:
    page = json.dumps(
        [
            {
                "data_parallel_rank": 0,
                "endpoint": publisher.endpoint,
                "replay_endpoint": publisher.replay_endpoint,
                "topic": "",
            }
        ]
    ).encode()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = self.path == "/kv_event_sources"
            self.send_response(200 if found else 404)
            self.end_headers()
            self.wfile.write(page if found else b"")

        def log_message(self, format: str, *arguments: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer((host, HTTP_PORT), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server
