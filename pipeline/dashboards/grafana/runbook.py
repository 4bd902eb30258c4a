"""The alert runbook as a dashboard: an alert can link to it wherever Grafana runs."""

from __future__ import annotations

import re

from pipeline.dashboards.grafana.model import Annotations, Dashboard, GrafanaPanel, GridPosition, Templating
from pipeline.dashboards.panel import COLUMNS, Alert

RUNBOOK_UID = "kvlens-runbook"
HEIGHT = 7
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")


def pages(alerts: tuple[Alert, ...]) -> dict[str, int]:
    """Return {anchor in docs/alerts.md: number of the panel that shows its section}."""
    anchors = dict.fromkeys(alert.runbook for alert in alerts)
    return {anchor: number for number, anchor in enumerate(anchors, start=1)}


def compiled(alerts: tuple[Alert, ...], text: str) -> Dashboard:
    """Return the sections of docs/alerts.md, whose text is `text`, as panels; KeyError if one is missing."""
    sections = _sections(text)
    titles = {alert.runbook: alert.title for alert in reversed(alerts)}
    panels = [
        GrafanaPanel(
            id=number,
            type="text",
            title=titles[anchor],
            grid_pos=GridPosition(_column(number), (number - 1) // 2 * HEIGHT, COLUMNS // 2, HEIGHT),
            options={"mode": "markdown", "content": sections[anchor]},
        )
        for anchor, number in pages(alerts).items()
    ]
    return Dashboard(
        uid=RUNBOOK_UID,
        title="kvlens: Alert runbook",
        description="What to do when an alert fires.",
        panels=panels,
        templating=Templating([]),
        annotations=Annotations([]),
        refresh="",
    )


def _column(number: int) -> int:
    return (number - 1) % 2 * (COLUMNS // 2)


def _sections(text: str) -> dict[str, str]:
    """Return {heading: text}; links to other pages of the documentation become plain text."""
    _, *parts = re.split(r"^## ", text, flags=re.MULTILINE)
    headed = (part.split("\n", 1) for part in parts)
    return {heading.strip(): _LINK.sub(r"\1", body).strip() for heading, body in headed}
