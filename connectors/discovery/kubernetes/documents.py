"""What the Kubernetes API says about pods, as far as it matters here. No IO."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

from connectors.kafka.encoding import UNDECODABLE
from connectors.process.errors import DataError
from schemas.reasons import KubernetesFailure


class ApiFailure(DataError):
    """Pods could not be listed or watched; `str()` says in one line what was wrong."""

    reason: KubernetesFailure
    text: str
    line = "{text}"


_Decoded = TypeVar("_Decoded")


class DocumentMalformed(Exception):
    """An answer is not what the API promises."""


class _Metadata(msgspec.Struct, rename="camel"):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    creation_timestamp: str | None = None


class _Port(msgspec.Struct, rename="camel"):
    container_port: int
    name: str = ""


class _Container(msgspec.Struct):
    ports: list[_Port] | None = None


class _Spec(msgspec.Struct, rename="camel"):
    containers: list[_Container] | None = None
    init_containers: list[_Container] | None = None
    host_network: bool = False


class _Address(msgspec.Struct):
    ip: str = ""


class _ContainerStatus(msgspec.Struct, rename="camel"):
    restart_count: int = 0


class _Status(msgspec.Struct, rename="camel"):
    phase: str = ""
    pod_ip: str = msgspec.field(default="", name="podIP")
    pod_ips: list[_Address] | None = msgspec.field(default=None, name="podIPs")
    container_statuses: list[_ContainerStatus] | None = None
    start_time: str | None = None


class PodDocument(msgspec.Struct):
    """A pod as the API writes it."""

    metadata: _Metadata
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)

    @property
    def key(self) -> tuple[str, str]:
        return (self.metadata.namespace, self.metadata.name)


class _ListMetadata(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class PodPage(msgspec.Struct):
    """One page of a list."""

    metadata: _ListMetadata
    items: list[PodDocument] | None = None


class WatchEvent(msgspec.Struct):
    """A line of a watch: ADDED, MODIFIED, DELETED, BOOKMARK or ERROR."""

    type: str
    object: msgspec.Raw


class _Failure(msgspec.Struct):
    code: int = 0
    message: str = ""


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod that runs, or may yet begin to."""

    namespace: str
    name: str
    uid: str
    addresses: tuple[str, ...] = ()
    """Its own, the primary one first; none before its network is there."""
    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    ports: tuple[tuple[str, int], ...] = ()
    """(name, number) of the ports that its containers declare."""
    restarts: int = 0
    """How often its containers were started again."""
    created: str = ""
    """When it was created, as text that sorts by time."""
    began: str = ""
    """When its node took it, likewise; empty before."""
    on_host: bool = False
    """Its address is its node's, which other pods may have as well."""

    @property
    def key(self) -> tuple[str, str]:
        return (self.namespace, self.name)


_ENDED = ("Failed", "Succeeded")


def pod_of(document: PodDocument) -> Pod | None:
    """Return the pod; None if it has ended."""
    metadata, spec, status = document.metadata, document.spec, document.status
    if status.phase in _ENDED:
        return None
    addresses = dict.fromkeys([status.pod_ip, *(address.ip for address in status.pod_ips or ())])
    containers = [*(spec.containers or ()), *(spec.init_containers or ())]
    return Pod(
        namespace=metadata.namespace,
        name=metadata.name,
        uid=metadata.uid,
        addresses=tuple(address for address in addresses if address),
        labels=metadata.labels or {},
        annotations=metadata.annotations or {},
        ports=tuple((port.name, port.container_port) for each in containers for port in each.ports or ()),
        restarts=sum(each.restart_count for each in status.container_statuses or ()),
        created=metadata.creation_timestamp or "",
        began=status.start_time or "",
        on_host=spec.host_network,
    )


def without_node(pods: Collection[Pod]) -> set[tuple[str, str]]:
    """Return the keys of the pods whose address another one got later.

    A pod whose node is gone is there with its address until somebody deletes it.
    """
    own = [pod for pod in pods if pod.began and pod.addresses and not pod.on_host]
    latest = {pod.addresses[0]: pod.key for pod in sorted(own, key=lambda pod: (pod.began, pod.created))}
    return {pod.key for pod in own if latest[pod.addresses[0]] != pod.key}


_pages = msgspec.json.Decoder(PodPage)
_events = msgspec.json.Decoder(WatchEvent)
_documents = msgspec.json.Decoder(PodDocument)
_failures = msgspec.json.Decoder(_Failure)


def decoded_page(data: bytes) -> PodPage:
    """Return a page of a list. Raises DocumentMalformed."""
    return _decoded(_pages, data)


def decoded_event(line: bytes) -> WatchEvent:
    """Return the event in a line of a watch. Raises DocumentMalformed."""
    return _decoded(_events, line)


def decoded_pod(event: WatchEvent) -> PodDocument:
    """Return the pod of an ADDED, MODIFIED or DELETED event. Raises DocumentMalformed."""
    return _decoded(_documents, event.object)


def decoded_failure(data: bytes | msgspec.Raw) -> tuple[int, str]:
    """Return (code, message) of an ERROR event or of an answer that refuses; (0, "") if it says neither."""
    try:
        failure = _decoded(_failures, data)
    except DocumentMalformed:
        return 0, ""
    return failure.code, failure.message


def _decoded(decoder: msgspec.json.Decoder[_Decoded], data: bytes | msgspec.Raw) -> _Decoded:
    try:
        return decoder.decode(data)
    except UNDECODABLE as error:
        raise DocumentMalformed(str(error)) from error
