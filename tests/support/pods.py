"""Pod documents as the Kubernetes API writes them, and what is told of pods."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class Told:
    """What an origin of pods told."""

    def __init__(self) -> None:
        self.lists = 0
        self.failures: list[str] = []
        self.refused: list[tuple[str, str]] = []
        self.unanswered: list[tuple[str, str]] = []
        self.texts: list[str] = []
        self.doubts: list[tuple[str, int, int]] = []

    def absence_doubted(self, origin: str, known: int, found: int) -> None:
        self.doubts.append((origin, known, found))

    def pods_listed(self, origin: str, namespace: str, pods: int) -> None:
        self.lists += 1

    def pods_unknown(self, origin: str, namespace: str, reason: str, text: str) -> None:
        self.failures.append(reason)
        self.texts.append(text)

    def pod_refused(self, replica: str, reason: str, text: str) -> None:
        self.refused.append((replica, reason))

    def description_failed(self, replica: str, url: str, reason: str, text: str) -> None:
        self.unanswered.append((replica, reason))
        self.texts.append(text)


def pod_document(
    name: str = "vllm-0",
    *,
    uid: str = "u1",
    namespace: str = "ml",
    ip: str | None = "10.0.0.7",
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    ports: Mapping[str, int] | None = None,
    phase: str = "Running",
    ready: bool = True,
    starts: int = 0,
    created: str = "2026-01-01T00:00:00Z",
    began: str | None = None,
    on_host: bool = False,
) -> dict[str, Any]:
    """Return the parts of a pod that the API always writes, with what the test is about."""
    addresses = {} if ip is None else {"podIP": ip, "podIPs": [{"ip": ip}]}
    container: dict[str, Any] = {"name": "engine", "image": "engine"}
    if ports:
        container["ports"] = [
            {"name": key, "containerPort": port, "protocol": "TCP"} for key, port in ports.items()
        ]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": uid,
            "resourceVersion": "1",
            "creationTimestamp": created,
            **({"labels": dict(labels)} if labels else {}),
            **({"annotations": dict(annotations)} if annotations else {}),
        },
        "spec": {"containers": [container], "nodeName": "node-1", "hostNetwork": on_host},
        "status": {
            "phase": phase,
            **({} if began is None else {"startTime": began}),
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
            "containerStatuses": [{"name": "engine", "ready": ready, "restartCount": starts}],
            **addresses,
        },
    }
