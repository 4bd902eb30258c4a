"""The part of the Kubernetes API that gives pods, over real HTTP, in the process of the test."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from aiohttp import web

Document = dict[str, Any]


class KubeApi:
    """Pods that are listed in pages and watched line by line. Selectors of the form `a=b,c=d` only."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, Mapping[str, str], Mapping[str, str]]] = []
        """(path, query, headers) of each."""
        self.refusals: list[tuple[int, str]] = []
        """(status, body) of the next answers."""
        self.url = ""
        self._pods: dict[tuple[str, str], Document] = {}
        self._history: list[tuple[int, str, Document]] = []
        self._version = 100
        self._oldest = 100
        self._watches: list[tuple[asyncio.Queue[bytes | None], str, str]] = []
        self._runner: web.AppRunner | None = None
        self._port = 0

    async def start(self) -> None:
        """Begin to answer, at the same port as before."""
        app = web.Application()
        app.router.add_get("/api/v1/pods", self._pods_answer)
        app.router.add_get("/api/v1/namespaces/{namespace}/pods", self._pods_answer)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self._port)
        await site.start()
        self._port = self._runner.addresses[0][1]
        self.url = f"http://127.0.0.1:{self._port}"

    async def stop(self) -> None:
        """End all watches and answer nobody."""
        self.end_watches()
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    @property
    def lists(self) -> int:
        return sum("watch" not in query and "continue" not in query for _, query, _ in self.requests)

    @property
    def watching(self) -> int:
        return len(self._watches)

    def put(self, document: Document) -> None:
        """Make a pod, or change it."""
        metadata = document["metadata"]
        key = (metadata["namespace"], metadata["name"])
        before = self._pods.get(key)
        self._pods[key] = document
        self._version += 1
        metadata["resourceVersion"] = str(self._version)
        self._tell("ADDED" if before is None else "MODIFIED", document, before)

    def delete(self, namespace: str, name: str, *, unseen: bool = False) -> None:
        """Delete a pod; `unseen` tells no watch."""
        document = self._pods.pop((namespace, name))
        self._version += 1
        if not unseen:
            self._tell("DELETED", document, document)

    def end_watches(self, last: bytes | None = None) -> None:
        """End all watches, with a last line if there is one."""
        for queue, _, _ in self._watches:
            if last is not None:
                queue.put_nowait(last)
            queue.put_nowait(None)
        self._watches.clear()

    def compact(self) -> None:
        """Forget what happened until now: watches from before are told that they are too old."""
        self._oldest = self._version + 1

    def send(self, line: bytes) -> None:
        """Send a line to all watches as it is."""
        for queue, _, _ in self._watches:
            queue.put_nowait(line)

    def _tell(self, kind: str, document: Document, before: Document | None) -> None:
        for queue, namespace, selector in self._watches:
            if namespace not in ("", document["metadata"]["namespace"]):
                continue
            matched = before is not None and _matches(before, selector)
            if _matches(document, selector):
                now = kind if kind == "DELETED" else ("MODIFIED" if matched else "ADDED")
            elif matched:
                now = "DELETED"
            else:
                continue
            queue.put_nowait(json.dumps({"type": now, "object": document}).encode() + b"\n")

    async def _pods_answer(self, request: web.Request) -> web.StreamResponse:
        self.requests.append((request.path, dict(request.query), dict(request.headers)))
        if self.refusals:
            status, body = self.refusals.pop(0)
            return web.Response(status=status, text=body, content_type="application/json")
        namespace = request.match_info.get("namespace", "")
        selector = request.query["labelSelector"]
        if "watch" in request.query:
            return await self._watch(request, namespace, selector)
        return self._list(request, namespace, selector)

    def _list(self, request: web.Request, namespace: str, selector: str) -> web.Response:
        found = [
            pod
            for (of, _), pod in sorted(self._pods.items())
            if namespace in ("", of) and _matches(pod, selector)
        ]
        first, limit = int(request.query.get("continue", 0)), int(request.query["limit"])
        metadata = {"resourceVersion": str(self._version)}
        if first + limit < len(found):
            metadata["continue"] = str(first + limit)
        return web.json_response(
            {
                "kind": "PodList",
                "apiVersion": "v1",
                "metadata": metadata,
                "items": found[first : first + limit],
            }
        )

    async def _watch(self, request: web.Request, namespace: str, selector: str) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        response.enable_chunked_encoding()
        await response.prepare(request)
        if int(request.query["resourceVersion"]) < self._oldest:
            await response.write(
                b'{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure",'
                b'"message":"too old resource version: 1 (2)","reason":"Expired","code":410}}\n'
            )
            return response
        queue: asyncio.Queue[bytes | None] = asyncio.Queue()
        watch = (queue, namespace, selector)
        self._watches.append(watch)
        try:
            while (line := await queue.get()) is not None:
                await response.write(line)
        finally:
            if watch in self._watches:
                self._watches.remove(watch)
        return response


def _matches(document: Document, selector: str) -> bool:
    labels = document["metadata"].get("labels", {})
    wanted = (term.partition("=") for term in selector.split(","))
    return all(labels.get(key) == value for key, _, value in wanted)
