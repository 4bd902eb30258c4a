"""The pods of one namespace, kept up to date: list, watch, and list again whenever the watch ends."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Protocol

from connectors.discovery.kubernetes.api import Api, connected
from connectors.discovery.kubernetes.documents import ApiFailure, DocumentMalformed, Pod, decoded_pod
from connectors.discovery.kubernetes.pod_set import PodSet
from connectors.discovery.presence import AbsenceTelemetry
from connectors.process.absence import Absence
from connectors.process.backoff import Backoff
from schemas.discovery_settings import Kubernetes
from schemas.reasons import KubernetesFailure

AGAIN = Backoff(first=0.5, longest=10.0)
LEAST_SECONDS = 1.0
"""Between two lists, so that a server that ends every watch at once is not asked without a pause."""
_OF_PODS = ("ADDED", "MODIFIED", "DELETED")


class PodWatchTelemetry(AbsenceTelemetry, Protocol):
    """Where lists and their failures are counted."""

    def pods_listed(self, origin: str, namespace: str, pods: int) -> None: ...
    def pods_unknown(self, origin: str, namespace: str, reason: KubernetesFailure, text: str) -> None: ...


class PodWatch:
    """The pods of a namespace that match a selector. No failure removes one of them."""

    def __init__(self, origin: str, namespace: str, entry: Kubernetes, telemetry: PodWatchTelemetry) -> None:
        """`origin` is what the settings call the entry; `namespace` may be "" for all."""
        self._origin = origin
        self._namespace = namespace
        self._entry = entry
        self._telemetry = telemetry
        self._set = PodSet()
        self._absence = Absence(
            lambda known, found: telemetry.absence_doubted(f"{origin} {namespace}".strip(), known, found)
        )
        self._counted: set[tuple[str, str]] = set()
        """Pods that were there before the last list, or before the first one that is doubted."""
        self._version: str | None = None
        self._failures = 0

    @property
    def pods(self) -> list[Pod]:
        return self._set.pods

    async def list_once(self) -> None:
        """List the pods, if the server lets us; a failure is reported."""
        try:
            async with connected(self._entry) as api:
                await self._list(api)
        except ApiFailure as failure:
            self._tell(failure)

    async def follow(self, changed: Callable[[], None]) -> None:
        """List and watch for ever; call `changed` after each list and each change."""
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            try:
                async with connected(self._entry) as api:
                    if self._version is None:
                        await self._list(api)
                        changed()
                    if not self._absence.pending:
                        await self._watch(api, changed)
            except ApiFailure as failure:
                self._absence.unanswered()
                self._failures += 1
                self._tell(failure)
            pause = max(AGAIN.pause(self._failures), began + LEAST_SECONDS - loop.time())
            # So that connectors that lost the same server do not come back at the same moment.
            await asyncio.sleep(pause * random.uniform(0.5, 1.0) if self._failures else max(pause, 0.0))

    async def _list(self, api: Api) -> None:
        documents, version = await api.pods(self._namespace)
        now = asyncio.get_running_loop().time()
        if not self._absence.pending:
            self._counted = {pod.key for pod in self._set.pods}
        found = self._counted & {document.key for document in documents}
        believed = self._absence.believed(len(self._counted), len(found), now)
        self._set.listed(documents, whole=believed)
        # A doubted list is repeated, and not watched from.
        self._version = version if believed else None
        self._telemetry.pods_listed(self._origin, self._namespace, len(documents))

    async def _watch(self, api: Api, changed: Callable[[], None]) -> None:
        """Apply the events behind the last list. However the watch ends, the pods are listed next."""
        version, self._version = self._version or "", None
        async for events in api.events(self._namespace, version):
            of_pods = [event for event in events if event.type in _OF_PODS]
            for event in of_pods:
                try:
                    self._set.changed(event.type, decoded_pod(event))
                except DocumentMalformed as error:
                    raise ApiFailure("malformed", f"an event: {error}") from error
            if of_pods:
                changed()
            if events:
                self._failures = 0
        self._failures = 0

    def _tell(self, failure: ApiFailure) -> None:
        self._telemetry.pods_unknown(self._origin, self._namespace, failure.reason, str(failure))
