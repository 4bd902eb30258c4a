"""What a viewer sees on a panel: series, rows of a heatmap, lanes, bars, figures, cells.

Rules as written in grafana/grafana, as stored in November 2026:
- time series: every figure of a frame with a time is a series
- `public/app/plugins/panel/heatmap/fields.ts` (`prepareHeatmapData`) and
  `public/app/features/transformers/calculateHeatmap/heatmap.ts` (`rowsToCellsHeatmap`)
- `public/app/core/components/TimelineChart/utils.ts` (`prepareTimelineFields`)
- `public/app/plugins/panel/barchart/utils.ts` (`prepareGraphableFrames`, `preparePlotFrame`)
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from tests.support.grafana import fields
from tests.support.grafana.fields import colour, display_name, overridden, text
from tests.support.grafana.figures import written
from tests.support.grafana.frames import Field, Frame


class Series(NamedTuple):
    name: str
    colour: str | None
    points: dict[datetime, Any]
    stacked: bool


class HeatRow(NamedTuple):
    """A row of a heatmap, from below; `cells` are by the end of their time."""

    label: str
    cells: dict[datetime, Any]


class Lane(NamedTuple):
    """A row of a timeline: text and colour of each moment that has a state."""

    name: str
    states: dict[datetime, tuple[str, str | None]]


class Bar(NamedTuple):
    """One bar, or a piece of a stacked one."""

    group: str
    name: str
    colour: str | None
    value: Any


def series(panel: Mapping[str, Any], frames: Sequence[Frame]) -> list[Series]:
    shown = overridden(frames, panel["fieldConfig"])
    stacking = panel["fieldConfig"]["defaults"]["custom"]["stacking"]["mode"]
    return [
        Series(
            display_name(field, shown),
            colour(field),
            dict(zip(_times(frame), field.values, strict=True)),
            stacking == "normal",
        )
        for frame in shown
        for field in frame.of_type("number")
    ]


def heat_rows(panel: Mapping[str, Any], frames: Sequence[Frame]) -> list[HeatRow]:
    """Return the rows; they are sorted by their bounds only if all their names are numbers."""
    shown = overridden(frames, panel["fieldConfig"])
    options = panel["options"]
    assert not options["calculate"]
    if not shown:
        return []
    (frame,) = shown
    rows = [(display_name(field, shown), field) for field in frame.of_type("number")]
    if all(not math.isnan(_leading_number(name)) for name, _ in rows):
        rows.sort(key=lambda row: _leading_number(row[0]))
    unit = options["yAxis"]["unit"]
    return [
        HeatRow(_formatted(name, unit), dict(zip(_times(frame), field.values, strict=True)))
        for name, field in rows
    ]


def lanes(panel: Mapping[str, Any], frames: Sequence[Frame]) -> list[Lane]:
    """Return a lane for every field but the time, whether it is a figure or a text."""
    shown = overridden(frames, panel["fieldConfig"])
    return [
        Lane(
            display_name(field, shown),
            {
                at: (text(field, value), colour(field, value))
                for at, value in zip(_times(frame), field.values, strict=True)
                if value is not None
            },
        )
        for frame in shown
        for field in frame.of_type("number", "boolean", "string")
    ]


def bars(panel: Mapping[str, Any], frames: Sequence[Frame]) -> list[Bar]:
    (frame,) = overridden(frames, panel["fieldConfig"])
    groups = frame.of_type("string")[0].values
    return [
        Bar(group, display_name(field, [frame]), colour(field), field.values[row])
        for row, group in enumerate(groups)
        for field in frame.of_type("number")
    ]


def stats(panel: Mapping[str, Any], frames: Sequence[Frame]) -> dict[str, str]:
    """Return {name: the text of its last value that is not null}; one figure alone shows no name."""
    (frame,) = overridden(frames, panel["fieldConfig"])
    assert panel["options"]["reduceOptions"] == {"calcs": ["lastNotNull"], "values": False}
    return {display_name(field, [frame]): text(field, _last(field)) for field in frame.of_type("number")}


def cells(panel: Mapping[str, Any], frames: Sequence[Frame]) -> list[dict[str, str]]:
    """Return the rows of a table, by names of columns."""
    (frame,) = overridden(frames, panel["fieldConfig"])
    columns = [
        (display_name(field, [frame]), [text(field, each) for each in field.values]) for field in frame.fields
    ]
    return [{name: column[row] for name, column in columns} for row in range(len(columns[0][1]))]


def links(panel: Mapping[str, Any], frames: Sequence[Frame]) -> set[tuple[str, str]]:
    """Return (text of a cell, where it leads) of every link in a table."""
    (frame,) = overridden(frames, panel["fieldConfig"])
    return {
        (text(field, value), url)
        for field in frame.fields
        for value in field.values
        for url in fields.links(field, value)
    }


def _times(frame: Frame) -> list[datetime]:
    return frame.of_type("time")[0].values


def _last(field: Field) -> Any:
    return next((value for value in reversed(field.values) if value is not None), None)


def _leading_number(name: str) -> float:
    """Return the number that a text begins with, as `parseFloat` does."""
    found = re.match(r"\s*[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", name, re.IGNORECASE)
    return float(found[0]) if found else math.nan


def _formatted(name: str, unit: str) -> str:
    """Return the label of a row: its bound with the unit if its whole name is a number."""
    try:
        return written(float(name), unit)
    except ValueError:
        return name
