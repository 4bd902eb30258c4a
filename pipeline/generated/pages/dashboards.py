"""docs/dashboards.md: every panel and alert rule, and what it means."""

from __future__ import annotations

from pipeline.dashboards.alerts import ALERTS
from pipeline.dashboards.boards import BOARDS
from pipeline.dashboards.panel import Alert, Board, Panel
from pipeline.generated.pages.markdown import page, table

INTRODUCTION = """\
What each panel means. `kvlens serve` shows the boards as a page, and [Grafana](grafana.md) draws them from
the same definitions. [Reading the figures](reading.md#which-figure-answers-which-question) says which panel
answers which question.

**SQL.** A panel's menu on the page shows its statement, with the chosen range filled in; Grafana shows it
under *Inspect*. Statements of alert rules are in
[`alerting`](../deploy/grafana/provisioning/alerting/). Panels read the views `*_series`, which take the
ten-second, minute or hour [tables](tables.md#views), whichever fits the range."""
ALERT_RULES = "A rule fires for each row whose value is above its bound for as many minutes as it says."


def dashboards_page() -> bytes:
    """Return the page."""
    blocks = [INTRODUCTION]
    shown: set[str] = set()
    for board in BOARDS:
        blocks += _board(board, shown)
    blocks += ["## Alert rules", ALERT_RULES]
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
        f"{alert.description} Above {alert.above:g} over {alert.over_minutes} minutes, for "
        f"{alert.for_minutes}; {alert.severity}; [what to do](alerts.md#{alert.runbook}).",
    ]
