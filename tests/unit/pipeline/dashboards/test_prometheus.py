"""The rules for Prometheus: of metrics that exist, with a page that explains them."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from ruamel.yaml import YAML

from pipeline.dashboards.alerts import ALERTS
from pipeline.dashboards.prometheus.process_alerts import PROCESS_ALERTS
from pipeline.dashboards.prometheus.rules import Group, Groups, Rule, compiled, rules_file
from pipeline.settings.loading import load
from schemas.fleet_metrics import Fleet
from schemas.metrics import Connector, Index, Worker, metrics_of
from schemas.settings import Settings
from tests.support.checkout import ROOT
from tests.support.command_lines import FENCE

METRICS = {
    metric.name: metric for process in (Connector, Worker, Index, Fleet) for metric in metrics_of(process)
}
FLEET, PROCESSES = compiled(ALERTS, PROCESS_ALERTS).groups
RULES = [*FLEET.rules, *PROCESSES.rules]
NAME = re.compile(r"kvlens_\w+")
ALERTS_PAGE = (ROOT / "docs/alerts.md").read_text("utf-8")
UNKNOWN_TO_METRICS = {"stream-late", "hashes-not-comparable"}


def shown(language: str) -> list[str]:
    """Return what the page on alerts shows in a language."""
    return [block for given, block in FENCE.findall(ALERTS_PAGE) if given == language]


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
def test_a_rule_asks_for_metrics_that_exist(rule: Rule) -> None:
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


def test_alerts_and_sections_of_the_runbook_are_one_to_one() -> None:
    alerts = [*(alert.runbook for alert in ALERTS), *(alert.id for alert in PROCESS_ALERTS)]
    runbook = ALERTS_PAGE.split("\n# Alert runbook\n")[1]
    _, *sections = re.split(r"^## ", runbook, flags=re.M)
    headed = dict(section.split("\n", 1) for section in sections)
    assert alerts == list(headed)
    assert len(sections) == len(alerts)
    assert all(len(text.split()) > 20 for text in headed.values())


def test_a_rule_leads_to_the_section_of_its_alert() -> None:
    runbooks = [alert.runbook for alert in ALERTS if alert.metrics]
    runbooks += [alert.id for alert in PROCESS_ALERTS]
    assert [rule.annotations["runbook"] for rule in RULES] == [
        f"docs/alerts.md#{anchor}" for anchor in runbooks
    ]


def test_a_plain_prometheus_gets_the_rules_of_the_chart() -> None:
    file = YAML(typ="safe").load(ROOT / "deploy/prometheus/rules.yaml")
    assert file == json.loads((ROOT / "deploy/helm/kvlens/rules.json").read_bytes())


def test_text_is_quoted_as_yaml_wants_it() -> None:
    texts = ["it's", "a: b # c", "true story", '{"a"}', "- x", "yes.", "10m", "http://a/b#c"]
    rules = [Rule(alert="A", expr=text, for_="0m", labels={"l": text}, annotations={}) for text in texts]
    read = YAML(typ="safe").load(rules_file(Groups([Group("g", rules)])))
    assert [rule["expr"] for rule in read["groups"][0]["rules"]] == texts
    assert [rule["labels"]["l"] for rule in read["groups"][0]["rules"]] == texts


def test_prometheus_asks_where_the_page_on_alerts_lets_kvlens_answer() -> None:
    settings = load("".join(shown("toml")), "kvlens.toml", {}, read_secret=str).settings
    (prometheus,) = [block for block in shown("yaml") if block.startswith("# prometheus.yml")]
    jobs: list[dict[str, Any]] = YAML(typ="safe").load(prometheus)["scrape_configs"]
    asked = {job["job_name"]: job["static_configs"][0]["targets"] for job in jobs}
    assert asked == {
        "kvlens": [f"127.0.0.1:{each.metrics_port}" for each in (settings.connector, settings.worker)],
        "kvlens-fleet": [f"127.0.0.1:{Settings().page.port}"],
    }
    assert jobs[1]["metrics_path"] == "/fleet/metrics"


def test_the_example_of_alertmanager_takes_what_the_rules_are_labelled() -> None:
    (alertmanager,) = [block for block in shown("yaml") if block.startswith("# alertmanager.yml")]
    route = YAML(typ="safe").load(alertmanager)["route"]["routes"][0]
    assert route["matchers"] == ['service = "kvlens"']
    assert {rule.labels["service"] for rule in RULES} == {"kvlens"}
    fields = re.findall(r"\.(?:Common)?Annotations\.(\w+)", alertmanager)
    assert set(fields) <= {name for rule in RULES for name in rule.annotations}
