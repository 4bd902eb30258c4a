"""Alert rules as the groups of a PrometheusRule, or of a file: the YAML of `rule_files`."""

from __future__ import annotations

import re

import msgspec

from pipeline.dashboards.panel import Alert
from pipeline.dashboards.prometheus.process_alerts import ProcessAlert

RUNBOOK = "docs/alerts.md"
_HEAD = """\
# Written by `python -m pipeline.generated`; edit `pipeline/dashboards` instead. How to use it: docs/alerts.md
groups:
"""
_PLAIN = re.compile(r"[A-Za-z][\w./#-]*|\d+m")
"""Texts that need no quotes in YAML; none of ours is a keyword of YAML."""


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
    of_the_fleet = [
        _rule_of(alert, alert.metrics, alert.runbook, description=alert.description)
        for alert in alerts
        if alert.metrics
    ]
    of_processes = [_rule_of(alert, alert.expression, alert.id) for alert in process_alerts]
    return Groups([Group("kvlens-fleet", of_the_fleet), Group("kvlens-processes", of_processes)])


def _rule_of(alert: Alert | ProcessAlert, expression: str, runbook: str, **more: str) -> Rule:
    """Return the rule; `runbook` is an anchor there, and the chart turns its place into `runbook_url`."""
    return Rule(
        alert=_name(alert.id),
        expr=expression,
        for_=f"{alert.for_minutes}m",
        labels={"severity": alert.severity, "service": "kvlens"},
        annotations={"summary": alert.title, **more, "runbook": f"{RUNBOOK}#{runbook}"},
    )


def _name(identifier: str) -> str:
    return "Kvlens" + "".join(part.capitalize() for part in identifier.split("-"))


def rules_file(groups: Groups) -> bytes:
    """Return the groups in YAML, as `promtool check rules` takes them."""
    return (_HEAD + "".join(map(_group, groups.groups))).encode()


def _group(group: Group) -> str:
    return f"  - name: {_text(group.name)}\n    rules:\n" + "".join(map(_rule, group.rules))


def _rule(rule: Rule) -> str:
    lines = [f"- alert: {_text(rule.alert)}", f"  expr: {_text(rule.expr)}", f"  for: {_text(rule.for_)}"]
    for name, texts in (("labels", rule.labels), ("annotations", rule.annotations)):
        lines.append(f"  {name}:")
        lines += [f"    {key}: {_text(text)}" for key, text in texts.items()]
    return "".join(f"      {line}\n" for line in lines)


def _text(text: str) -> str:
    """Return a scalar: single quotes, in which only a quote has to be written twice."""
    return text if _PLAIN.fullmatch(text) else "'" + text.replace("'", "''") + "'"
