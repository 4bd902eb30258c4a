"""docs/dashboards.md: every panel and alert rule, what it means and the SQL behind it."""

from __future__ import annotations

from pipeline.dashboards.alerts import ALERTS
from pipeline.dashboards.boards import BOARDS
from pipeline.dashboards.panel import Alert, Board, Panel
from pipeline.generated.pages.markdown import fenced, folded, page

INTRODUCTION = """\
The boards are defined once, in `pipeline/dashboards`. `kvlens serve` shows them as a page, and they are
compiled to Grafana ([`deploy/grafana`](../deploy/grafana/); [Grafana](grafana.md) says how to install them
beside what yours has). [Reading the figures](reading.md#which-figure-answers-which-question) says which of
them answers which question, [alerts](alerts.md) what to do when a rule fires. Look up here what a panel
means, and the SQL behind it, which you may send to ClickHouse yourself."""
PARAMETERS = """\
The tests run every statement below on the real engine. Panels read the views `*_series`, which take the
ten-second tables for up to two hours, the minute tables for up to a day and the hour tables beyond; a range
that begins before what a table [keeps](exactness.md#time) is read from the next one.
Parameters of the SQL: `from`, `to` (the chosen range), `step` (seconds a point of time stands for), `model`
and `replica` (what the viewer chose, empty for all)."""


def dashboards_page() -> bytes:
    """Return the page."""
    contents = [("board", "shows", "panels"), ("---", "---", "---"), *map(_contents, BOARDS)]
    table = "\n".join(f"| {' | '.join(row)} |" for row in contents)
    blocks = [INTRODUCTION, table, PARAMETERS]
    shown: set[str] = set()
    for board in BOARDS:
        blocks += _board(board, shown)
    blocks.append("## Alert rules")
    for alert in ALERTS:
        blocks += _alert(alert)
    return page("Dashboards", "`pipeline/dashboards`", *blocks)


def _contents(board: Board) -> tuple[str, str, str]:
    titles = " · ".join(panel.title for panel in board.panels)
    return f"[{board.title}](#{board.title.lower().replace(' ', '-')})", board.description, titles


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
        _statement(panel.sql),
    ]


def _alert(alert: Alert) -> list[str]:
    return [
        f"### {alert.title}",
        f"{alert.description} Fires for each row with a value above {alert.above:g}, over the last "
        f"{alert.over_minutes} minutes, held for {alert.for_minutes}; severity {alert.severity}; "
        f"[what to do](alerts.md#{alert.runbook}).",
        _statement(alert.sql),
    ]


def _statement(sql: str) -> str:
    return folded("SQL", fenced("sql", sql.strip()))
