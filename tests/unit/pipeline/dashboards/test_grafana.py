"""What Grafana gets: strict structure, its own parameters, and nothing in alerts that alerts do not have."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pipeline.dashboards.alerts import ALERTS
from pipeline.dashboards.boards import BOARDS
from pipeline.dashboards.grafana import runbook
from pipeline.dashboards.grafana.model import Dashboard
from pipeline.dashboards.grafana.query import DATA_SOURCE_UID, Query, grafana_sql
from pipeline.dashboards.grafana.sharing import OF_ANOTHER_PANEL, SharedQuery
from pipeline.dashboards.panel import COLUMNS, PARAMETERS, UnknownParameter
from tests.support.grafana import variables
from tests.support.grafana.data_source import Connection, InvalidSettings, connection

GRAFANA = Path("deploy/grafana")
DASHBOARDS = sorted((GRAFANA / "dashboards").glob("*.json"))

RUNBOOK = Path("docs/alerts.md").read_text()
ENVIRONMENT = {
    "KVLENS_CLICKHOUSE_HOST": "store.example",
    "KVLENS_CLICKHOUSE_PORT": "8443",
    "KVLENS_CLICKHOUSE_SECURE": "true",
    "KVLENS_CLICKHOUSE_USERNAME": "viewer",
    "KVLENS_CLICKHOUSE_PASSWORD": "secret",
}


def test_every_board_has_its_file() -> None:
    assert [path.stem for path in DASHBOARDS] == sorted([*(board.id for board in BOARDS), "runbook"])


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_a_dashboard_is_what_grafana_reads(path: Path) -> None:
    dashboard = msgspec.json.decode(path.read_bytes(), type=Dashboard)
    ids = [panel.id for panel in dashboard.panels]
    assert len(set(ids)) == len(ids)
    taken: set[tuple[int, int]] = set()
    for panel in dashboard.panels:
        place = panel.grid_pos
        cells = {(place.x + dx, place.y + dy) for dx in range(place.w) for dy in range(place.h)}
        assert place.x + place.w <= COLUMNS
        assert not taken & cells
        taken |= cells
        if panel.type in ("row", "text"):
            continue
        assert panel.description
        assert panel.field_config["defaults"]["unit"]
        for written in panel.targets:
            if "panelId" in written:
                shared = msgspec.convert(written, SharedQuery)
                assert shared.panel_id in ids[: ids.index(panel.id)]
                assert panel.datasource == shared.datasource == OF_ANOTHER_PANEL
                continue
            target = msgspec.convert(written, Query)
            assert target.datasource.uid == "${datasource}"
            assert not re.search(r"(?<!\$)\{\w+:", target.raw_sql)
            used = set(re.findall(r"\$\{(\w+)", target.raw_sql))
            assert used <= {variable.name for variable in dashboard.templating.entries}


def test_parameters_become_macros_and_variables() -> None:
    every = " ".join(f"{{{name}:{kind}}}" for name, kind in PARAMETERS.items())
    assert grafana_sql("p", every) == (
        "$__fromTime $__toTime $__interval_s "
        "[${model:singlequote}] [${replica:singlequote}] [${role:singlequote}]"
    )


def test_alert_rules_have_no_template_variables_and_name_the_provisioned_data_source() -> None:
    written: dict[str, Any] = json.loads((GRAFANA / "provisioning/alerting/kvlens.json").read_text())
    rules = [rule for group in written["groups"] for rule in group["rules"]]
    assert [rule["uid"] for rule in rules] == [f"kvlens-{alert.id}" for alert in ALERTS]
    provisioned = (GRAFANA / "provisioning/datasources/kvlens.yaml").read_text()
    assert f"uid: {DATA_SOURCE_UID}\n" in provisioned
    for alert, rule in zip(ALERTS, rules, strict=True):
        query, reduced, compared = rule["data"]
        assert "${" not in json.dumps(rule)
        assert query["datasourceUid"] == DATA_SOURCE_UID
        # What tells the present state has no range.
        sql = query["model"]["rawSql"]
        assert ("$__fromTime" in sql, "$__toTime" in sql) == ("{from:" in alert.sql, "{to:" in alert.sql)
        assert "{" not in sql
        assert (reduced["model"]["expression"], compared["model"]["expression"]) == ("A", "B")
        assert rule["condition"] == compared["refId"]


def test_an_alert_may_not_ask_for_a_chosen_model() -> None:
    with pytest.raises(UnknownParameter):
        grafana_sql("a", "SELECT {model:Array(String)}", frozenset({"from", "to"}))


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_a_fresh_board_takes_the_provisioned_source_or_one_called_after_kvlens(path: Path) -> None:
    listed = json.loads(path.read_text())["templating"]["list"]
    if path.stem == "runbook":
        assert listed == []
        return
    (variable,) = [each for each in listed if each["type"] == "datasource"]
    others = {"a": "Billing", "b": "Logs"}
    assert variables.source(variable, others | {"c": "KVLens staging", "kvlens": "kvlens"}) == "kvlens"
    assert variables.source(variable, others | {"c": "KVLens staging"}) == "c"
    assert variables.source(variable, others) is None


def test_the_data_source_reaches_https_and_http() -> None:
    file = (GRAFANA / "provisioning/datasources/kvlens.yaml").read_text()
    assert set(re.findall(r"\$\{(\w+)\}", file)) == set(ENVIRONMENT)
    expected = Connection("https", "store.example", 8443, "viewer", "secret", "kvlens")
    assert connection(file, ENVIRONMENT) == expected
    plain = connection(file, ENVIRONMENT | {"KVLENS_CLICKHOUSE_SECURE": "false"})
    assert plain == expected._replace(scheme="http")
    with pytest.raises(InvalidSettings, match="secure"):
        connection(file, {name: ENVIRONMENT[name] for name in ENVIRONMENT if not name.endswith("SECURE")})


def test_the_documentation_names_what_the_data_source_needs() -> None:
    text = Path("docs/grafana.md").read_text()
    for name in ENVIRONMENT:
        assert f"| `{name}` |" in text
        assert f"{name}=" in text


def test_every_board_and_rule_has_a_config_map_with_the_label_of_its_sidecar() -> None:
    made = json.loads((GRAFANA / "kustomization.yaml").read_text())
    assert made["generatorOptions"] == {"disableNameSuffixHash": True}
    found = {}
    for one in made["configMapGenerator"]:
        (label,) = one["options"].pop("labels").items()
        (file,) = one["files"]
        found[one["name"]] = label, file, one["options"]
    folder = {"annotations": {"grafana_folder": "kvlens"}}
    assert found == {
        **{
            f"kvlens-grafana-{path.stem}": (
                ("grafana_dashboard", "1"), f"kvlens-{path.name}=dashboards/{path.name}", folder
            )
            for path in DASHBOARDS
        },
        "kvlens-grafana-alerts": (
            ("grafana_alert", "1"), "kvlens.json=provisioning/alerting/kvlens.json", {}
        ),
        "kvlens-grafana-datasource": (
            ("grafana_datasource", "1"), "kvlens.yaml=provisioning/datasources/kvlens.yaml", {}
        ),
    }  # fmt: skip
    for _, file, _ in found.values():
        assert (GRAFANA / file.split("=")[1]).is_file()


def test_the_chart_has_the_boards_that_grafana_gets() -> None:
    assert Path("deploy/helm/kvlens/dashboards").resolve() == (GRAFANA / "dashboards").resolve()


def test_the_runbook_has_the_whole_section_of_each_alert() -> None:
    shown = runbook.compiled(ALERTS, RUNBOOK)
    assert [panel.title for panel in shown.panels] == [alert.title for alert in ALERTS]
    for alert, panel in zip(ALERTS, shown.panels, strict=True):
        text = panel.options["content"]
        words = re.findall(r"\w+", text)
        section = RUNBOOK.split(f"## {alert.runbook}\n")[1].split("\n## ")[0]
        assert words == re.findall(r"\w+", re.sub(r"\]\([^)]*\)", "", section))
        assert "](" not in text


def test_a_runbook_without_a_section_is_refused() -> None:
    with pytest.raises(KeyError, match="stream-degraded"):
        runbook.compiled(ALERTS, "# Alert runbook\n")
