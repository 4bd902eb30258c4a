"""Those fields of the Prometheus operator's resources that the chart uses; the API server knows no other."""

from __future__ import annotations

from typing import Any

JSON = dict[str, Any]
TEXT: JSON = {"type": "string"}


def _object(**properties: JSON) -> JSON:
    return {"type": "object", "properties": properties}


def _list(item: JSON) -> JSON:
    return {"type": "array", "items": item}


TEXTS: JSON = {"type": "object", "additionalProperties": TEXT}


def _resource(kind: str, plural: str, **spec: JSON) -> JSON:
    schema = _object(apiVersion=TEXT, kind=TEXT, metadata={"type": "object"}, spec=_object(**spec))
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.monitoring.coreos.com"},
        "spec": {
            "group": "monitoring.coreos.com",
            "names": {"kind": kind, "plural": plural},
            "scope": "Namespaced",
            "versions": [version],
        },
    }


CUSTOM_RESOURCES = (
    _resource(
        "PodMonitor",
        "podmonitors",
        selector=_object(matchLabels=TEXTS),
        podMetricsEndpoints=_list(
            _object(
                port=TEXT,
                path=TEXT,
                interval=TEXT,
                authorization=_object(credentials=_object(name=TEXT, key=TEXT)),
            )
        ),
    ),
    _resource(
        "PrometheusRule",
        "prometheusrules",
        groups=_list(
            _object(
                name=TEXT,
                rules=_list(_object(alert=TEXT, expr=TEXT, labels=TEXTS, annotations=TEXTS, **{"for": TEXT})),
            )
        ),
    ),
)
