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
    """Return where the section is in the repository; the chart turns it into an address, `runbook_url`."""
    return f"{RUNBOOK}#{anchor}"


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
