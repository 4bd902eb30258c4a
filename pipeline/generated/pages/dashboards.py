"""docs/dashboards.md: every panel and alert rule, what it means and the SQL behind it."""

from __future__ import annotations

from pipeline.dashboards.alerts import ALERTS
from pipeline.dashboards.boards import BOARDS
from pipeline.dashboards.panel import Alert, Board, Panel
from pipeline.generated.pages.markdown import fenced, page

INTRODUCTION = """\
Four boards, defined once in `pipeline/dashboards` and compiled to Grafana
([`deploy/grafana`](../deploy/grafana/)). The tests run every statement below on the real
engine. Panels read the views `*_series`, which take the ten-second tables for up to two hours, the minute
tables for up to a day and the hour tables beyond.

[Grafana](grafana.md) says how to install them beside what your Grafana has.

Parameters of the SQL: `from`, `to` (the chosen range), `step` (seconds a point of time stands for), `model`
and `replica` (what the viewer chose, empty for all)."""


def dashboards_page() -> bytes:
    """Return the page."""
    blocks = [INTRODUCTION]
    shown: set[str] = set()
    for board in BOARDS:
        blocks += _board(board, shown)
    blocks.append("## Alert rules")
    for alert in ALERTS:
        blocks += _alert(alert)
    return page("Dashboards", "`pipeline/dashboards`", *blocks)


def _board(board: Board, shown: set[str]) -> list[str]:
    blocks = [f"## {board.title}", board.description]
    for panel in board.panels:
        if panel.id not in shown:
            shown.add(panel.id)
            blocks += _panel(panel)
    return blocks


def _panel(panel: Panel) -> list[str]:
    return [
        f"### {panel.title}",
        f"{panel.description} Unit: {panel.unit}.",
        fenced("sql", panel.sql.strip()),
    ]


def _alert(alert: Alert) -> list[str]:
    return [
        f"### {alert.title}",
        f"{alert.description} Fires for each row with a value above {alert.above:g}, over the last "
        f"{alert.over_minutes} minutes, held for {alert.for_minutes}; severity {alert.severity}; "
        f"[what to do](alerts.md#{alert.runbook}).",
        fenced("sql", alert.sql.strip()),
    ]
