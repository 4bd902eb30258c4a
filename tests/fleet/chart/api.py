"""The Kubernetes API as its administrator, for threads."""

from __future__ import annotations

import json
import ssl
import urllib.request
from typing import Any

from tests.fleet.control_plane import ADMIN, ControlPlane

JSON = dict[str, Any]


class Api:
    def __init__(self, plane: ControlPlane) -> None:
        self._url = plane.other_url
        self._context = ssl.create_default_context(cafile=str(plane.ca_file))

    def ask(self, method: str, path: str, body: JSON | None = None) -> JSON:
        """Return the answer; raises OSError, of which urllib's errors are."""
        merged = method == "PATCH"
        headers = {
            "Authorization": f"Bearer {ADMIN}",
            "Content-Type": f"application/{'strategic-merge-patch+json' if merged else 'json'}",
        }
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._url + path, data, headers, method=method)
        with urllib.request.urlopen(request, context=self._context, timeout=30) as answer:
            return dict(json.load(answer))

    def report(self, pod: JSON, phase: str, ready: bool, states: dict[str, JSON], ip: str = "") -> None:
        """Say how a pod is; `states` are those of its containers."""
        metadata = pod["metadata"]
        status: JSON = {
            "phase": phase,
            "startTime": metadata["creationTimestamp"],
            "conditions": [{"type": kind, "status": str(ready)} for kind in ("Ready", "ContainersReady")],
            "containerStatuses": [
                {
                    "name": container["name"],
                    "image": container["image"],
                    "imageID": "",
                    "ready": ready,
                    "restartCount": 0,
                    "state": states[container["name"]],
                }
                for container in pod["spec"]["containers"]
            ],
        }
        if ip:
            status |= {"podIP": ip, "podIPs": [{"ip": ip}]}
        path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}/status"
        self.ask("PATCH", path, {"status": status})


def running(pod: JSON) -> JSON:
    return {"running": {"startedAt": pod["metadata"]["creationTimestamp"]}}


def terminated(code: int) -> JSON:
    return {"terminated": {"exitCode": code, "reason": "Error" if code else "Completed"}}
