"""What a kubelet tells the API server of pods, without running them: ready, or done."""

from __future__ import annotations

import json
import ssl
import threading
import urllib.request
from types import TracebackType
from typing import Any

from tests.fleet.control_plane import ADMIN, ControlPlane

PAUSE_SECONDS = 0.1
JSON = dict[str, Any]


class Kubelet:
    """A thread that looks at the pods of all workloads, again and again."""

    def __init__(self, plane: ControlPlane) -> None:
        self._url = plane.other_url
        self._context = ssl.create_default_context(cafile=str(plane.ca_file))
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kubelet", daemon=True)
        self.failing: set[str] = set()
        """Namespaces in which what should end, ends with code 1."""

    def __enter__(self) -> Kubelet:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(PAUSE_SECONDS):
            try:
                for pod in self._ask("GET", "/api/v1/pods?fieldSelector=status.phase=Pending")["items"]:
                    if "ownerReferences" in pod["metadata"] and "deletionTimestamp" not in pod["metadata"]:
                        self._start(pod)
            except OSError:  # the pod changed or went meanwhile, or a test killed the server
                continue

    def _start(self, pod: JSON) -> None:
        metadata, spec = pod["metadata"], pod["spec"]
        ends = spec["restartPolicy"] == "Never"
        code = int(metadata["namespace"] in self.failing)
        if ends:
            phase, ready = ("Failed" if code else "Succeeded"), "False"
            state: JSON = {"terminated": {"exitCode": code, "reason": "Error" if code else "Completed"}}
        else:
            phase, ready = "Running", "True"
            state = {"running": {"startedAt": metadata["creationTimestamp"]}}
        status = {
            "phase": phase,
            "startTime": metadata["creationTimestamp"],
            "conditions": [{"type": kind, "status": ready} for kind in ("Ready", "ContainersReady")],
            "containerStatuses": [
                {
                    "name": container["name"],
                    "image": container["image"],
                    "imageID": "",
                    "ready": not ends,
                    "restartCount": 0,
                    "state": state,
                }
                for container in spec["containers"]
            ],
        }
        path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}/status"
        self._ask("PATCH", path, {"status": status})

    def _ask(self, method: str, path: str, body: JSON | None = None) -> JSON:
        headers = {
            "Authorization": f"Bearer {ADMIN}",
            "Content-Type": "application/strategic-merge-patch+json",
        }
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._url + path, data, headers, method=method)
        with urllib.request.urlopen(request, context=self._context, timeout=30) as answer:
            return dict(json.load(answer))
