"""A schema registry as Confluent's API describes one: subjects, versions, ids; it refuses what it is told."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote


class SchemaRegistry:
    """What was asked, what is registered, and how it answers."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.asked: list[str] = []
        self.ids: dict[str, int] = {}
        """By text; a schema has one id whatever its subjects are."""
        self.subjects: dict[str, list[int]] = {}
        self.login = ""
        """`user:password`; empty: nobody needs one."""
        self.status = 200
        self.problem: dict[str, Any] | bytes = b"<html>"
        """What is answered with another status than 200."""
        self.incompatible = ""
        """A message with which no other schema is taken for any subject."""
        self.silent = threading.Event()
        """While set, nothing is answered."""

    def schema(self, number: int) -> dict[str, Any]:
        (text,) = (text for text, found in self.ids.items() if found == number)
        found: dict[str, Any] = json.loads(text)
        return found

    def answer(self, path: str, body: dict[str, str], authorization: str) -> tuple[int, Any]:
        self.asked.append(path)
        expected = "Basic " + base64.b64encode(self.login.encode()).decode()
        if self.login and authorization != expected:
            return 401, {"error_code": 40101, "message": "Unauthorized"}
        if self.status != 200:
            return self.status, self.problem
        assert body["schemaType"] == "JSON"
        _, subjects, subject, *versions = path.split("/")
        assert subjects == "subjects"
        known = self.subjects.get(unquote(subject), [])
        number = self.ids.get(body["schema"])
        if not versions:
            if not known:
                return 404, {"error_code": 40401, "message": "Subject not found"}
            if number not in known:
                return 404, {"error_code": 40403, "message": "Schema not found"}
        elif self.incompatible and number not in known:
            return 409, {"error_code": 409, "message": self.incompatible}
        number = self.ids.setdefault(body["schema"], 100_000 + len(self.ids))
        if number not in known:
            self.subjects.setdefault(unquote(subject), []).append(number)
        return 200, {"id": number}


@contextmanager
def schema_registry() -> Iterator[SchemaRegistry]:
    """Lend a registry on a free port of the loopback interface."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    lent = SchemaRegistry(f"http://127.0.0.1:{server.server_port}")
    server.lent = lent  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield lent
    finally:
        lent.silent.clear()
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        lent: SchemaRegistry = self.server.lent  # type: ignore[attr-defined]
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        while lent.silent.is_set():
            threading.Event().wait(0.02)
        status, told = lent.answer(self.path, body, self.headers.get("Authorization", ""))
        payload = told if isinstance(told, bytes) else json.dumps(told).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
        self.send_header("Content-Length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)

    def log_message(self, format: str, *arguments: object) -> None:
        """Say nothing."""
