"""What a test does to a cluster: namespaces, pods and their status, accounts and rights."""

from __future__ import annotations

import ssl
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

import aiohttp

from tests.fleet.control_plane import ADMIN, ControlPlane

JSON = dict[str, Any]


class Cluster:
    """The API of a control plane, used as its administrator."""

    def __init__(self, plane: ControlPlane) -> None:
        self._url = plane.other_url
        self._context = ssl.create_default_context(cafile=str(plane.ca_file))

    async def __aenter__(self) -> Cluster:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=self._context), headers={"Authorization": f"Bearer {ADMIN}"}
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._session.close()

    async def namespace(self, name: str) -> None:
        await self._send("POST", "/api/v1/namespaces", {"metadata": {"name": name}})

    async def pod(
        self,
        namespace: str,
        name: str,
        ip: str,
        labels: Mapping[str, str],
        annotations: Mapping[str, str] | None = None,
        ports: Mapping[str, int] | None = None,
    ) -> str:
        """Make a pod that runs, as a kubelet would report it; return its UID."""
        container: JSON = {"name": "engine", "image": "engine"}
        if ports:
            container["ports"] = [{"name": key, "containerPort": port} for key, port in ports.items()]
        metadata = {"name": name, "labels": dict(labels), "annotations": dict(annotations or {})}
        made = await self._send(
            "POST",
            f"/api/v1/namespaces/{namespace}/pods",
            {"metadata": metadata, "spec": {"containers": [container], "nodeName": "node-1"}},
        )
        await self.status(namespace, name, {"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}]})
        return str(made["metadata"]["uid"])

    async def status(self, namespace: str, name: str, status: JSON) -> None:
        await self._merge(f"/api/v1/namespaces/{namespace}/pods/{name}/status", {"status": status})

    async def ready(self, namespace: str, name: str, ready: bool) -> None:
        condition = {"type": "Ready", "status": "True" if ready else "False"}
        await self.status(namespace, name, {"conditions": [condition]})

    async def label(self, namespace: str, name: str, labels: Mapping[str, str | None]) -> None:
        """Set labels; None takes one away."""
        await self._merge(f"/api/v1/namespaces/{namespace}/pods/{name}", {"metadata": {"labels": labels}})

    async def delete(self, namespace: str, name: str) -> None:
        await self._send("DELETE", f"/api/v1/namespaces/{namespace}/pods/{name}", {"gracePeriodSeconds": 0})

    async def account(self, namespace: str, name: str, verbs: Sequence[str]) -> str:
        """Make a ServiceAccount that may do this to its namespace's pods and nothing else; return a token."""
        rights = "/apis/rbac.authorization.k8s.io/v1"
        await self._send(
            "POST", f"/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": name}}
        )
        await self._send(
            "POST",
            f"{rights}/namespaces/{namespace}/roles",
            {
                "metadata": {"name": name},
                "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": list(verbs)}],
            },
        )
        await self._send(
            "POST",
            f"{rights}/namespaces/{namespace}/rolebindings",
            {
                "metadata": {"name": name},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
                "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
            },
        )
        made = await self._send(
            "POST",
            f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token",
            {"spec": {"expirationSeconds": 3600}},
        )
        return str(made["status"]["token"])

    async def allowed(self, token: str, path: str, method: str = "GET") -> int:
        """Return the status that the bearer of a token gets."""
        headers = {"Authorization": f"Bearer {token}"}
        async with self._session.request(method, self._url + path, headers=headers) as answer:
            return answer.status

    async def _merge(self, path: str, patch: JSON) -> None:
        await self._send("PATCH", path, patch, {"Content-Type": "application/strategic-merge-patch+json"})

    async def _send(
        self, method: str, path: str, body: JSON, headers: Mapping[str, str] | None = None
    ) -> JSON:
        async with self._session.request(method, self._url + path, json=body, headers=headers) as answer:
            text = await answer.text()
            if answer.status >= 300:
                raise AssertionError(f"{method} {path}: {answer.status} {text[:500]}")
            return dict(await answer.json())
