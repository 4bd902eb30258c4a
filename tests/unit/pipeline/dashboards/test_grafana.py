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
from pipeline.dashboards.grafana import alerting
from pipeline.dashboards.grafana.dashboard import Dashboard
from pipeline.dashboards.grafana.query import grafana_sql
from pipeline.dashboards.panel import COLUMNS, PARAMETERS, UnknownParameter

GRAFANA = Path("deploy/grafana")
DASHBOARDS = sorted((GRAFANA / "dashboards").glob("*.json"))


def test_every_board_has_its_file() -> None:
    assert [path.stem for path in DASHBOARDS] == sorted(board.id for board in BOARDS)


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
        if panel.type == "row":
            continue
        assert panel.description
        assert panel.field_config["defaults"]["unit"]
        for target in panel.targets:
            assert target.datasource.uid == "${datasource}"
            assert not re.search(r"(?<!\$)\{\w+:", target.raw_sql)
            used = set(re.findall(r"\$\{(\w+)", target.raw_sql))
            assert used <= {variable.name for variable in dashboard.templating.entries}


def test_parameters_become_macros_and_variables() -> None:
    every = " ".join(f"{{{name}:{kind}}}" for name, kind in PARAMETERS.items())
    assert grafana_sql("p", every) == (
        "$__fromTime $__toTime $__interval_s [${model:singlequote}] [${replica:singlequote}]"
    )


def test_alert_rules_have_no_template_variables_and_name_the_provisioned_data_source() -> None:
    written: dict[str, Any] = json.loads((GRAFANA / "provisioning/alerting/kvlens.json").read_text())
    rules = [rule for group in written["groups"] for rule in group["rules"]]
    assert [rule["uid"] for rule in rules] == [f"kvlens-{alert.id}" for alert in ALERTS]
    provisioned = (GRAFANA / "provisioning/datasources/kvlens.yaml").read_text()
    assert f"uid: {alerting.DATA_SOURCE_UID}\n" in provisioned
    for alert, rule in zip(ALERTS, rules, strict=True):
        query, reduced, compared = rule["data"]
        assert "${" not in json.dumps(rule)
        assert query["datasourceUid"] == alerting.DATA_SOURCE_UID
        # What tells the present state has no range.
        sql = query["model"]["rawSql"]
        assert ("$__fromTime" in sql, "$__toTime" in sql) == ("{from:" in alert.sql, "{to:" in alert.sql)
        assert "{" not in sql
        assert (reduced["model"]["expression"], compared["model"]["expression"]) == ("A", "B")
        assert rule["condition"] == compared["refId"]


def test_an_alert_may_not_ask_for_a_chosen_model() -> None:
    with pytest.raises(UnknownParameter):
        grafana_sql("a", "SELECT {model:Array(String)}", frozenset({"from", "to"}))
