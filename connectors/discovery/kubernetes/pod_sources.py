"""The sources of a pod. No IO."""

from __future__ import annotations

from connectors.discovery.bound import MAX_NAME, is_model_name
from connectors.discovery.kubernetes.annotations import (
    ANNOTATION_PREFIX,
    Note,
    PodRefused,
    annotated,
    number,
    port_in,
)
from connectors.discovery.kubernetes.described import Address, Description
from connectors.discovery.kubernetes.documents import Pod
from connectors.discovery.kubernetes.presets import PRESETS, ROLES
from connectors.discovery.kubernetes.publishers import publishers_of
from connectors.process.addresses import MAX_PORT, bracketed
from connectors.sources import Source
from schemas.discovery_settings import Kubernetes, Role
from schemas.settings import hash_domain


def replica_of(pod: Pod, entry: Kubernetes) -> str:
    """Return the id of a pod's replica."""
    alone = len(entry.namespaces) < 2 and entry.namespaces != ("*",)
    return pod.name if alone else f"{pod.namespace}/{pod.name}"


def asked_at(pod: Pod, entry: Kubernetes) -> str | None:
    """Return the URL of the pod's HTTP server, if there is something to ask it.

    None where settings turn it off, annotations already say everything, or the pod has no address yet.
    """
    if not pod.addresses or {"port", "port-base"} & annotated(pod).keys():
        return None
    try:
        port = _http_port(pod, entry)
    except PodRefused:  # and its sources are refused as well
        return None
    return _url(pod, port) if port else None


def sources_of(pod: Pod, entry: Kubernetes, description: Description, note: Note) -> list[Source]:
    """Return the sources of a pod; none while it has no address. Raises PodRefused.

    `note` is called with what is left out of an accepted pod. An empty `description` says nothing.
    """
    if not pod.addresses:
        return []
    publishers = publishers_of(pod, entry, description, note)
    model = _model(pod, entry, publishers[0].topic)
    metrics_port = _metrics_port(pod, entry)
    role = _role(pod, entry, note)
    return [
        Source(
            replica=replica_of(pod, entry),
            dp_rank=publisher.rank,
            model=model,
            tenant=entry.tenant,
            hash_domain=hash_domain(model, entry.hash_scheme, entry.tenant),
            endpoint=_endpoint(pod, publisher.events),
            replay_endpoint=None if publisher.replay is None else _endpoint(pod, publisher.replay),
            topic=entry.topic or publisher.topic,
            metrics_url=f"{_url(pod, metrics_port)}/metrics" if metrics_port else None,
            role=role,
            session_name=pod.uid,
        )
        for publisher in publishers
    ]


def _model(pod: Pod, entry: Kubernetes, topic: str) -> str:
    preset = PRESETS[entry.preset]
    label = entry.model_label or preset.model_label
    in_topic = topic.split("@", 2)
    model = (
        annotated(pod).get("model")
        or (pod.annotations.get(preset.model_annotation) if preset.model_annotation else None)
        or (pod.labels.get(label) if label else None)
        or (in_topic[2] if len(in_topic) == 3 and in_topic[0] == "kv" else None)
        or entry.model
    )
    if not model:
        raise PodRefused("no_model", f"its model is unknown; annotate it with {ANNOTATION_PREFIX}model")
    if not is_model_name(model):
        raise PodRefused("bad_model", f"a model's name has at most {MAX_NAME} printable characters")
    return model


def _role(pod: Pod, entry: Kubernetes, note: Note) -> Role:
    said = (pod.labels.get(label) for label in PRESETS[entry.preset].role_labels)
    told = annotated(pod).get("role") or next(filter(None, said), "")
    if told and told not in ROLES:
        text = f"its role is {told[:20]!r}, which says nothing here; annotate it with {ANNOTATION_PREFIX}role"
        note(PodRefused("bad_role", text))
    return ROLES.get(told, "") or entry.role


def _metrics_port(pod: Pod, entry: Kubernetes) -> int:
    """Return the port of the metrics page, 0 for none."""
    return (
        number(pod, "metrics-port", 1, MAX_PORT)
        or entry.metrics_port
        or port_in(pod.labels, PRESETS[entry.preset].metrics_port_label)
        or _http_port(pod, entry)
    )


def _http_port(pod: Pod, entry: Kubernetes) -> int:
    """Return the port of the HTTP server, 0 if it is not to be asked."""
    port = number(pod, "http-port", 1, MAX_PORT)
    if port is None:
        port = entry.http_port
    preset = PRESETS[entry.preset]
    return (port_in(pod.labels, preset.http_port_label) or preset.http_port) if port is None else port


def _endpoint(pod: Pod, address: Address) -> str:
    return f"tcp://{bracketed(address.host or pod.addresses[0])}:{address.port}"


def _url(pod: Pod, port: int) -> str:
    return f"http://{bracketed(pod.addresses[0])}:{port}"
