"""What is known about the stacks that run engines on Kubernetes: their labels and ports. No IO."""

from __future__ import annotations

from dataclasses import dataclass

from schemas.discovery_settings import Kubernetes, Role

EVENT_PORT_NAMES = ("kv-events",)
REPLAY_PORT_NAMES = ("kv-replay", "kv-events-replay")


@dataclass(frozen=True, slots=True)
class Preset:
    """What counts where the settings say nothing."""

    selector: str
    model_label: str = ""
    model_annotation: str = ""
    http_port: int = 8000
    """0: the engines speak HTTPS there, with certificates that cannot be checked."""
    http_port_label: str = ""
    metrics_port_label: str = ""
    role_labels: tuple[str, ...] = ()
    """The first of them that a pod has names its role."""


_LLMD_ROLE = "llm-d.ai/role"
ROLES: dict[str, Role] = {
    "prefill": "prefill",
    "decode": "decode",
    "both": "both",
    "prefill-decode": "both",
    "encode-prefill": "prefill",
    "encode-prefill-decode": "both",
    "worker": "",  # Dynamo's, where prefill and decode are not divided
}
"""By the value of a role label or annotation."""

PRESETS: dict[str, Preset] = {
    # LeaderWorkerSet's DisaggregatedSet labels pods of whatever stack (lws, api/disaggregatedset/v1).
    "vllm": Preset(selector="", role_labels=("disaggregatedset.x-k8s.io/role",)),
    # llm-d-router, pkg/epp/framework/plugins/scheduling/filter/bylabel/roles.go
    "llm-d": Preset(
        selector=f"{_LLMD_ROLE} in (prefill,decode,both,prefill-decode)",
        model_label="llm-d.ai/model",
        role_labels=(_LLMD_ROLE,),
    ),
    "kserve": Preset(
        selector="app.kubernetes.io/part-of=llminferenceservice,kserve.io/component=workload",
        model_label="app.kubernetes.io/name",
        http_port=0,
        role_labels=(_LLMD_ROLE,),  # pkg/controller/v1alpha2/llmisvc/workload_single_node.go
    ),
    "aibrix": Preset(
        selector="model.aibrix.ai/kv-events-enabled=true",
        model_label="model.aibrix.ai/name",
        http_port_label="model.aibrix.ai/port",
        metrics_port_label="model.aibrix.ai/metric-port",
        role_labels=("role-name",),  # of a StormService: pkg/plugins/gateway/algorithms/pd_disaggregation.go
    ),
    "production-stack": Preset(selector="app.kubernetes.io/component=serving-engine", model_label="model"),
    "dynamo": Preset(
        selector="nvidia.com/dynamo-component-type in (worker,prefill,decode)",
        model_annotation="nvidia.com/dynamo-base-model",
        # deploy/operator/internal/consts/consts.go: the type since v1beta1, before a sub-type of `worker`
        role_labels=("nvidia.com/dynamo-sub-component-type", "nvidia.com/dynamo-component-type"),
    ),
}


def selector_of(entry: Kubernetes) -> str:
    """Return the label selector of an entry of the settings; empty if it has none."""
    return entry.selector or PRESETS[entry.preset].selector
