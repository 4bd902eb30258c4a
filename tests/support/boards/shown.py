"""What boards, answer, findings and metrics show of a range of any store, by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from pipeline.dashboards.boards import BOARDS
from pipeline.dashboards.boards.advice import BRIEFING
from pipeline.dashboards.fleet_metrics.families import Family
from pipeline.dashboards.queries import RANGE

PANELS = {panel.id: panel for board in BOARDS for panel in board.panels}
Row = dict[str, Any]


class Result(Protocol):
    """Rows, and what their columns are called."""

    column_names: Sequence[str]
    result_rows: Sequence[Sequence[Any]]


Ask = Callable[..., Result]
"""Takes who asks, a statement, and its parameters by name; those not given are of nothing chosen."""


@dataclass
class Shown:
    """A range, both ends included; what was asked once is not asked again."""

    ask: Ask
    start: datetime
    end: datetime
    _seen: dict[tuple[str, str], list[Row]] = field(default_factory=dict)

    def panel(self, id: str, **chosen: Any) -> list[Row]:
        return self.rows(id, PANELS[id].sql, **chosen)

    def briefing(self, part: str, **chosen: Any) -> list[Row]:
        """Return the lines of the answer, or the findings, of which a viewer sees some."""
        columns = (
            "part, place, title, figure, detail, change, value, before, caveat, kind, model, hash_domain, "
            "replicas, tokens, at_least, at_most, prefill_tokens, gpu_seconds_per_hour"
        )
        view = f"briefing({RANGE}, models = {{model:Array(String)}})"
        sql = f"SELECT {columns} FROM {view} ORDER BY part, place"
        return [row for row in self.rows(BRIEFING.id, sql, **chosen) if row["part"] == part]

    def family(self, family: Family) -> list[Row]:
        return self.rows(f"metrics {family.name}", family.sql)

    def rows(self, owner: str, sql: str, **chosen: Any) -> list[Row]:
        key = sql, repr(sorted(chosen.items()))
        if key not in self._seen:
            found = self.ask(owner, sql, **{"from": self.start, "to": self.end, "step": self.step, **chosen})
            self._seen[key] = [dict(zip(found.column_names, row, strict=True)) for row in found.result_rows]
        return self._seen[key]

    @property
    def step(self) -> int:
        """A point of time is one window of the tables that are read."""
        sql = f"SELECT seconds FROM finest({RANGE})"
        key = sql, ""
        if key not in self._seen:
            found = self.ask("finest", sql, **{"from": self.start, "to": self.end})
            self._seen[key] = [{"seconds": found.result_rows[0][0]}]
        return int(self._seen[key][0]["seconds"])

    @property
    def seconds(self) -> float:
        """Over which rates are."""
        (row,) = self.rows("observed", f"SELECT seconds FROM observed({RANGE})")
        return float(row["seconds"])

    @property
    def models(self) -> list[str]:
        return sorted({row["model"] for row in self.panel("fleet-replicas")})
