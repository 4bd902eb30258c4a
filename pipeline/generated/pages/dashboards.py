"""docs/dashboards.md: every panel and alert rule, and what it means."""

from __future__ import annotations

from pipeline.dashboards.alerts import ALERTS
from pipeline.dashboards.boards import BOARDS
from pipeline.dashboards.panel import Alert, Board, Panel
from pipeline.generated.pages.markdown import page, table

INTRODUCTION = """\
What each panel of [the page](page.md) and of [Grafana](grafana.md) means;
[which answers which question](reading.md#which-figure-answers-which-question).

**SQL.** A panel's menu on the page shows its statement, Grafana shows it under *Inspect*. Alert rules have
theirs in [`alerting`](../deploy/grafana/provisioning/alerting/)."""
ALERT_RULES = """\
A rule fires for each row whose value, over *Over* minutes, is above *Above* (seconds, a share of the model's
prefill, or a number) for *For* minutes. It leads to what it means and what to do."""


def dashboards_page() -> bytes:
    """Return the page."""
    blocks = [INTRODUCTION]
    shown: dict[str, Panel] = {}
    for board in BOARDS:
        blocks += _board(board, shown)
    blocks += ["## Alert rules", ALERT_RULES]
    blocks.append(table(("Rule", "Above", "Over", "For", "Severity"), map(_alert, ALERTS)))
    return page("Dashboards", "`pipeline/dashboards`", *blocks)


def _board(board: Board, shown: dict[str, Panel]) -> list[str]:
    """Return the section of a board, of panels not shown yet; `shown` gets them, by id and by description."""
    rows = []
    for panel in board.panels:
        if panel.id not in shown:
            before = shown.setdefault(panel.description, panel)
            meaning = panel.description if before is panel else "As above."
            rows.append((panel.title, panel.unit, meaning))
        shown[panel.id] = panel
    return [f"## {board.title}", board.description, table(("Panel", "Unit", "Meaning"), rows)]


def _alert(alert: Alert) -> tuple[str, ...]:
    return (
        f"[{alert.title}](alerts.md#{alert.runbook})",
        f"{alert.above:g}",
        str(alert.over_minutes),
        str(alert.for_minutes),
        alert.severity,
    )
