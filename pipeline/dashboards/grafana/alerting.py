"""Alert rules as Grafana's alerting provisioning file.

Template variables do not exist in alert rules, so their SQL may use nothing but the range, and the data
source is named by the fixed uid of deploy/grafana/provisioning/datasources.
"""

from __future__ import annotations

from typing import Any

import msgspec

from pipeline.dashboards.grafana.dashboard import Place, places
from pipeline.dashboards.grafana.query import (
    DATA_SOURCE_TYPE,
    DATA_SOURCE_UID,
    TABLE,
    DataSource,
    Query,
    grafana_sql,
)
from pipeline.dashboards.grafana.runbook import RUNBOOK_UID, pages
from pipeline.dashboards.panel import Alert, Board

EXPRESSION_UID = "__expr__"
GROUP_INTERVAL = "1m"
GRAFANA = '{{ reReplaceAll "/+$" "" externalURL }}'
"""Grafana's address in a template, without the slash that it may end with."""
_RANGE = frozenset({"from", "to"})


class RelativeTimeRange(msgspec.Struct, frozen=True, rename={"from_": "from"}):
    """Seconds before now."""

    from_: int
    to: int = 0


class Stage(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A step of a rule: the query, its reduction to one figure a series, the comparison."""

    ref_id: str
    datasource_uid: str
    relative_time_range: RelativeTimeRange
    model: dict[str, Any]


class Rule(msgspec.Struct, frozen=True, kw_only=True, rename={"for_": "for"}):
    uid: str
    title: str
    condition: str
    data: list[Stage]
    for_: str
    labels: dict[str, str]
    annotations: dict[str, str]
    dashboard_uid: str = msgspec.field(name="dashboardUid")
    panel_id: int = msgspec.field(name="panelId")
    noDataState: str = "OK"  # noqa: N815 - Grafana's spelling
    execErrState: str = "Error"  # noqa: N815


class Group(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    name: str
    rules: list[Rule]
    org_id: int = 1
    folder: str = "kvlens"
    interval: str = GROUP_INTERVAL


class AlertingFile(msgspec.Struct, frozen=True, rename="camel"):
    groups: list[Group]
    api_version: int = 1


def compiled(alerts: tuple[Alert, ...], boards: tuple[Board, ...]) -> AlertingFile:
    """Return the provisioning file of the rules; raises UnknownParameter, KeyError for an unknown panel."""
    shown, explained = places(boards), pages(alerts)
    rules = [_rule(alert, shown[alert.panel], explained[alert.runbook]) for alert in alerts]
    return AlertingFile([Group(name="kvlens", rules=rules)])


def _rule(alert: Alert, shown: Place, page: int) -> Rule:
    span = RelativeTimeRange(alert.over_minutes * 60)
    query = Query(
        ref_id="A",
        datasource=DataSource(DATA_SOURCE_TYPE, DATA_SOURCE_UID),
        raw_sql=grafana_sql(alert.id, alert.sql, _RANGE),
        format=TABLE,
        query_type="table",
    )
    reduced = {"refId": "B", "type": "reduce", "expression": "A", "reducer": "last"}
    compared = {
        "refId": "C",
        "type": "threshold",
        "expression": "B",
        "conditions": [{"evaluator": {"type": "gt", "params": [alert.above]}}],
    }
    return Rule(
        uid=f"kvlens-{alert.id}",
        title=alert.title,
        condition="C",
        data=[
            Stage(
                ref_id="A",
                datasource_uid=DATA_SOURCE_UID,
                relative_time_range=span,
                model=msgspec.to_builtins(query),
            ),
            Stage(ref_id="B", datasource_uid=EXPRESSION_UID, relative_time_range=span, model=reduced),
            Stage(ref_id="C", datasource_uid=EXPRESSION_UID, relative_time_range=span, model=compared),
        ],
        for_=f"{alert.for_minutes}m",
        labels={"severity": alert.severity, "service": "kvlens"},
        annotations={
            "summary": _summary(alert),
            "description": f"{alert.description} Now {{{{ $values.B }}}}, fires above {alert.above:g}.",
            # An annotation cannot read the environment, but knows Grafana's address: the runbook is a board.
            "runbook_url": f"{GRAFANA}/d/{RUNBOOK_UID}?viewPanel={page}",
            "__dashboardUid__": shown.dashboard,
            "__panelId__": str(shown.panel),
        },
        dashboard_uid=shown.dashboard,
        panel_id=shown.panel,
    )


def _summary(alert: Alert) -> str:
    """Return the title, after what it fires for: `model m, replica a, rank 0: …`."""
    about = ", ".join(f"{name} {{{{ $labels.{name} }}}}" for name in alert.about)
    return f"{about}: {alert.title}" if about else alert.title
