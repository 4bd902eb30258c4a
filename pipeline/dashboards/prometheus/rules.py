"""Alert rules as the groups of a file, or of a PrometheusRule."""

from __future__ import annotations

import msgspec

from pipeline.dashboards.panel import Alert
from pipeline.dashboards.prometheus.process_alerts import ProcessAlert

RUNBOOK = "docs/alerts.md"


class Rule(msgspec.Struct, frozen=True, kw_only=True, rename={"for_": "for"}):
    alert: str
    expr: str
    for_: str
    labels: dict[str, str]
    annotations: dict[str, str]


class Group(msgspec.Struct, frozen=True):
    name: str
    rules: list[Rule]


class Groups(msgspec.Struct, frozen=True):
    groups: list[Group]


def compiled(alerts: tuple[Alert, ...], process_alerts: tuple[ProcessAlert, ...]) -> Groups:
    """Return the rules; an alert without PromQL has none, because only the tables know its figure."""
    return Groups(
        [
            Group("kvlens-fleet", [_of_the_fleet(alert) for alert in alerts if alert.metrics]),
            Group("kvlens-processes", [_of_a_process(alert) for alert in process_alerts]),
        ]
    )


def _of_the_fleet(alert: Alert) -> Rule:
    return Rule(
        alert=_name(alert.id),
        expr=alert.metrics,
        for_=f"{alert.for_minutes}m",
        labels={"severity": alert.severity, "service": "kvlens"},
        annotations={
            "summary": alert.title,
            "description": alert.description,
            "runbook": _runbook(alert.runbook),
        },
    )


def _of_a_process(alert: ProcessAlert) -> Rule:
    return Rule(
        alert=_name(alert.id),
        expr=alert.expression,
        for_=f"{alert.for_minutes}m",
        labels={"severity": alert.severity, "service": "kvlens"},
        annotations={"summary": alert.title, "runbook": _runbook(alert.id)},
    )


def _runbook(anchor: str) -> str:
    """Return where the section is in the repository; the chart makes an address of it, `runbook_url`."""
    return f"{RUNBOOK}#{anchor}"


def _name(identifier: str) -> str:
    return "Kvlens" + "".join(part.capitalize() for part in identifier.split("-"))
