"""The values of the Helm chart, as types: deploy/helm/kvlens/values.yaml has each of them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from schemas.settings import Settings

MOST_WORKERS = 1024
"""The most that `kafka.partitions` may be; templates refuse more workers than there are partitions."""

Object = dict[str, Any]
Objects = list[dict[str, Any]]
"""Kubernetes' own types, which the API server checks."""
Texts = dict[str, str]
Port = Annotated[int, Meta(ge=1024, le=65535)]
"""A port on which an unprivileged container may listen."""
Duration = Annotated[str, Meta(pattern=r"^([0-9]+(ms|[smh]))+$")]


class Closed(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """All keys are there, and no other."""


class Image(Closed, frozen=True):
    repository: Annotated[str, Meta(min_length=1)]
    tag: str
    digest: Annotated[str, Meta(pattern="^(sha256:[0-9a-f]{64})?$")]
    pull_policy: Literal["Always", "IfNotPresent", "Never"]


class SecretKey(Closed, frozen=True):
    """A key of a Secret that exists."""

    secret: Annotated[str, Meta(pattern=r"^([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?)?$")]
    key: Annotated[str, Meta(pattern=r"^[A-Za-z0-9._-]+$")]


class Secrets(Closed, frozen=True):
    files: Object
    """By section and setting; `schema.py` knows which there are."""
    lookup: bool
    revision: str


class ServiceAccount(Closed, frozen=True):
    create: bool
    name: str
    annotations: Texts


class Rbac(Closed, frozen=True):
    create: bool


class Resources(Closed, frozen=True):
    requests: dict[str, str | int | float]
    limits: dict[str, str | int | float]


class Pods(Closed, frozen=True):
    """What every part may say of its pods."""

    resources: Resources
    env: Objects
    env_from: Objects
    volumes: Objects
    volume_mounts: Objects
    pod_labels: Texts
    pod_annotations: Texts
    node_selector: Texts
    tolerations: Objects
    affinity: Object
    topology_spread_constraints: Objects
    priority_class_name: str


class ConnectorPods(Pods, frozen=True):
    shards: Annotated[int, Meta(ge=0, le=9999)]
    metrics_port: Port
    ports: Objects
    pod_disruption_budget: bool


class Autoscaling(Closed, frozen=True):
    enabled: bool
    min_replicas: Annotated[int, Meta(ge=1, le=MOST_WORKERS)]
    max_replicas: Annotated[int, Meta(ge=1, le=MOST_WORKERS)]
    cpu_percent: Annotated[int, Meta(ge=1, le=100)]


class WorkerPods(Pods, frozen=True, kw_only=True):
    replicas: Annotated[int, Meta(ge=0, le=MOST_WORKERS)] | msgspec.UnsetType = msgspec.UNSET
    """Unset if it is null, as Helm takes such keys away."""
    metrics_port: Port
    autoscaling: Autoscaling
    pod_disruption_budget: bool


class Service(Closed, frozen=True):
    type: Literal["ClusterIP", "NodePort", "LoadBalancer"]
    port: Annotated[int, Meta(ge=1, le=65535)]
    annotations: Texts


class ServePods(Pods, frozen=True):
    enabled: bool
    replicas: Annotated[int, Meta(ge=0)]
    port: Port
    service: Service


class IndexPods(Pods, frozen=True):
    enabled: bool
    replicas: Annotated[int, Meta(ge=0)]
    port: Port
    service: Service
    pod_disruption_budget: bool


class PrepareJob(Pods, frozen=True):
    enabled: bool
    backoff_limit: Annotated[int, Meta(ge=0)]
    active_deadline_seconds: Annotated[int, Meta(ge=1)]


class PodMonitor(Closed, frozen=True):
    enabled: bool
    interval: Duration
    labels: Texts


class PrometheusRule(Closed, frozen=True):
    enabled: bool
    labels: Texts
    runbook_url: Annotated[str, Meta(pattern="^(https?://[^#]+)?$")]
    """Address of docs/alerts.md, to which the anchor of an alert's section is added."""


class Dashboards(Closed, frozen=True):
    enabled: bool
    namespace: str
    label: Annotated[str, Meta(min_length=1)]
    folder_annotation: Annotated[str, Meta(min_length=1)]
    folder: str


class NetworkPolicy(Closed, frozen=True):
    enabled: bool
    metrics_from: Objects
    page_from: Objects
    index_from: Objects
    engines_from: Objects
    egress: Objects


class Values(Closed, frozen=True):
    name_override: str
    fullname_override: str
    image: Image
    image_pull_secrets: Objects
    config: Settings
    secrets: Secrets
    listen_address: Annotated[str, Meta(min_length=1)]
    env: Objects
    env_from: Objects
    volumes: Objects
    volume_mounts: Objects
    pod_labels: Texts
    pod_annotations: Texts
    pod_security_context: Object
    security_context: Object
    service_account: ServiceAccount
    rbac: Rbac
    connector: ConnectorPods
    worker: WorkerPods
    serve: ServePods
    index: IndexPods
    prepare: PrepareJob
    pod_monitor: PodMonitor
    prometheus_rule: PrometheusRule
    dashboards: Dashboards
    network_policy: NetworkPolicy
    shared: Object = msgspec.field(default_factory=dict, name="global")
    """The values `global`, which Helm passes on to a chart that is part of another."""
