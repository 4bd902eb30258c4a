"""The rules for Prometheus: of metrics that exist, with a page that explains them."""

from __future__ import annotations

import re

import pytest

from pipeline.dashboards.alerts import ALERTS
from pipeline.dashboards.prometheus.process_alerts import PROCESS_ALERTS
from pipeline.dashboards.prometheus.rules import Rule, compiled
from schemas.metrics import Connector, Fleet, Worker, metrics_of
from tests.support.checkout import ROOT

METRICS = {metric.name: metric for process in (Connector, Worker, Fleet) for metric in metrics_of(process)}
FLEET, PROCESSES = compiled(ALERTS, PROCESS_ALERTS).groups
RULES = [*FLEET.rules, *PROCESSES.rules]
NAME = re.compile(r"kvlens_\w+")
UNKNOWN_TO_METRICS = {"stream-late", "hashes-not-comparable"}


def what_to_watch() -> list[tuple[str, str]]:
    """(expression, what follows it) of the table on docs/operations.md."""
    text = (ROOT / "docs/operations.md").read_text("utf-8").split("## What to watch\n")[1].split("\n## ")[0]
    first_cells = re.findall(r"^\| (`.*?) \| [^|]* \| [^|]* \|$", text, re.M)
    found = []
    for cell in first_cells:
        (*_, waits) = cell.split("`")
        found += [(each.replace(r"\|", "|"), waits.strip()) for each in cell.split("`")[1::2]]
    return found


def test_every_alert_has_a_rule_unless_only_the_tables_tell() -> None:
    assert {alert.id for alert in ALERTS if not alert.metrics} == UNKNOWN_TO_METRICS
    assert [rule.annotations["summary"] for rule in FLEET.rules] == [
        alert.title for alert in ALERTS if alert.metrics
    ]
    for alert, rule in zip((each for each in ALERTS if each.metrics), FLEET.rules, strict=True):
        assert rule.labels == {"severity": alert.severity, "service": "kvlens"}
        assert rule.for_ == f"{alert.for_minutes}m"
    assert len({rule.alert for rule in RULES}) == len(RULES)
    assert FLEET.rules[0].alert == "KvlensStreamDegraded"


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: str(rule.alert))
def test_a_rule_asks_for_metrics_that_exist_and_names_a_section(rule: Rule) -> None:
    names = NAME.findall(rule.expr)
    assert names
    assert set(names) <= set(METRICS)
    for name in re.findall(r"increase\((\w+)", rule.expr):
        assert METRICS[name].kind == "counter"
    labels = {label for name in names for label in METRICS[name].labels}
    for by in re.findall(r"by \((\w+)\)", rule.expr):
        assert by in labels
    for label in re.findall(r"(\w+)=~?\"", rule.expr):
        assert label in labels
    page, _, anchor = rule.annotations["runbook"].partition("#")
    headings = re.findall(r"^#+ (.+)$", (ROOT / page).read_text("utf-8"), re.M)
    assert anchor in {re.sub(r"[^\w\- ]", "", each.lower()).replace(" ", "-") for each in headings}


def test_the_page_on_operations_lists_the_rules_of_the_processes() -> None:
    documented = dict(what_to_watch())
    for alert in PROCESS_ALERTS:
        waits = f"for {alert.for_minutes} min" if alert.for_minutes else ""
        assert documented.get(alert.expression) == waits, alert.id
    asked = {name for rule in RULES for name in NAME.findall(rule.expr)}
    assert {name for expression in documented for name in NAME.findall(expression)} <= asked
