"""docs/dashboards.md: every panel and alert rule, and what it means."""

from __future__ import annotations

from pipeline.dashboards.alerts import ALERTS
from pipeline.dashboards.boards import BOARDS
from pipeline.dashboards.panel import Alert, Board, Panel
from pipeline.generated.pages.markdown import page, table

INTRODUCTION = """\
The boards are defined once, in `pipeline/dashboards`. `kvlens serve` shows them as a page, and they are
compiled to Grafana ([`deploy/grafana`](../deploy/grafana/); [how to install them](grafana.md)). Look up here
what a panel means. [Reading the figures](reading.md#which-figure-answers-which-question) says which panel
answers which question, [alerts](alerts.md) what to do when a rule fires.

**SQL.** A panel's menu on the page shows its statement, with the chosen range filled in, ready to send to
ClickHouse; Grafana shows it under *Inspect*. Statements of alert rules are in
[`alerting`](../deploy/grafana/provisioning/alerting/). Panels read the views `*_series`, which take the
ten-second, minute or hour [tables](tables.md#views), whichever fits the range."""


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
    panels = [panel for panel in board.panels if panel.id not in shown]
    shown.update(panel.id for panel in panels)
    return [
        f"## {board.title}",
        board.description,
        table(("Panel", "Unit", "Meaning"), map(_panel, panels)),
    ]


def _panel(panel: Panel) -> tuple[str, str, str]:
    return panel.title, panel.unit, panel.description


def _alert(alert: Alert) -> list[str]:
    return [
        f"### {alert.title}",
        f"{alert.description} Fires for each row with a value above {alert.above:g}, over the last "
        f"{alert.over_minutes} minutes, held for {alert.for_minutes}; severity {alert.severity}; "
        f"[what to do](alerts.md#{alert.runbook}).",
    ]
