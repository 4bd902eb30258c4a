"""Alert rules as the file of a plain Prometheus: the YAML of `rule_files`."""

from __future__ import annotations

import re

from pipeline.dashboards.prometheus.rules import Group, Groups, Rule

_HEAD = """\
# Written by `python -m pipeline.generated`; edit `pipeline/dashboards` instead. How to use it: docs/alerts.md
groups:
"""
_PLAIN = re.compile(r"[A-Za-z][\w./#-]*|\d+m")
"""Texts that YAML reads as such without quotes; no keyword of it is among ours."""


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
