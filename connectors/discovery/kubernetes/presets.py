"""What is known of the stacks that run engines on Kubernetes: their labels and ports. No IO."""

from __future__ import annotations

from dataclasses import dataclass

from schemas.settings import Kubernetes

EVENT_PORT_NAMES = ("kv-events",)
REPLAY_PORT_NAMES = ("kv-replay", "kv-events-replay")


@dataclass(frozen=True, slots=True)
class Preset:
    """What settings leave open."""

    selector: str
    model_label: str = ""
    model_annotation: str = ""
    http_port: int = 8000
    """0: the engines speak HTTPS there, with certificates that nobody can check."""
    http_port_label: str = ""
    metrics_port_label: str = ""


PRESETS: dict[str, Preset] = {
    "vllm": Preset(selector=""),
    "llm-d": Preset(
        selector="llm-d.ai/role in (prefill,decode,both,prefill-decode)", model_label="llm-d.ai/model"
    ),
    "kserve": Preset(
        selector="app.kubernetes.io/part-of=llminferenceservice,kserve.io/component=workload",
        model_label="app.kubernetes.io/name",
        http_port=0,
    ),
    "aibrix": Preset(
        selector="model.aibrix.ai/kv-events-enabled=true",
        model_label="model.aibrix.ai/name",
        http_port_label="model.aibrix.ai/port",
        metrics_port_label="model.aibrix.ai/metric-port",
    ),
    "production-stack": Preset(selector="app.kubernetes.io/component=serving-engine", model_label="model"),
    "dynamo": Preset(
        selector="nvidia.com/dynamo-component-type in (worker,prefill,decode)",
        model_annotation="nvidia.com/dynamo-base-model",
    ),
}


def selector_of(entry: Kubernetes) -> str:
    """Return the label selector of an entry of the settings; empty if it has none."""
    return entry.selector or PRESETS[entry.preset].selector
