"""What Grafana's ClickHouse data source makes of a result: the frames that its backend sends to a panel.

Rules as written in
- grafana/clickhouse-datasource 4.20.0, `pkg/converters/registry.go`: the type of a field;
  `pkg/plugin/driver.go`: `FillMode` is null
- grafana/sqlds 5.3.0, `query.go`: `getFrames`
- grafana/grafana-plugin-sdk-go 0.293.0, `data/time_series.go`: `TimeSeriesSchema`, `LongToWide`,
  `SortWideFrameFields`
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

FieldType = Literal["time", "number", "string", "boolean", "other"]

_TYPES: tuple[tuple[str, FieldType], ...] = (
    (r"(U?Int(8|16|32|64|128|256)|Float(32|64))", "number"),
    (r"Bool", "boolean"),
    (r"String|LowCardinality\(String\)", "string"),
    (r"Enum(8|16)\(.*\)", "string"),
    (r"Date.*", "time"),
    (r"Decimal.*", "number"),
    (r"(Tuple|Array|Map|Variant|Dynamic|JSON|Nested).*", "other"),
    (r"FixedString\(.*\)|IPv[46]", "string"),
)


class Unconverted(Exception):
    """The plugin has no rule for a type."""


class Unsorted(Exception):
    """A long series goes back in time: `ErrorSeriesUnsorted`."""


@dataclass
class Field:
    """A column of a frame; `labels` is None where no label was ever given."""

    name: str
    type: FieldType
    values: list[Any]
    labels: dict[str, str] | None = None
    config: dict[str, Any] = field(default_factory=dict)


@dataclass
class Frame:
    name: str
    fields: list[Field]

    def of_type(self, *types: FieldType) -> list[Field]:
        return [each for each in self.fields if each.type in types]


def field_type(clickhouse: str) -> FieldType:
    """Return the type of a field of a ClickHouse type; raises Unconverted."""
    inner = re.fullmatch(r"(?:LowCardinality\()?Nullable\((.*?)\)\)?|(.*)", clickhouse)
    assert inner is not None
    name = clickhouse if inner[1] is None else inner[1]
    for pattern, kind in _TYPES:
        if re.fullmatch(pattern, name):
            return kind
    raise Unconverted(clickhouse)


def frames(
    names: Sequence[str], types: Sequence[str], rows: Sequence[Sequence[Any]], *, form: int, ref_id: str
) -> list[Frame]:
    """Return the frames of a result: none for a time series without rows (`ErrorNoResults`)."""
    columns = [[row[index] for row in rows] for index in range(len(names))]
    frame = Frame(
        ref_id,
        [
            Field(name, field_type(kind), column)
            for name, kind, column in zip(names, types, columns, strict=True)
        ],
    )
    if form == 1:
        return [frame]
    if not rows:
        return []
    return [_wide(frame) if _is_long(frame) else frame]


def _is_long(frame: Frame) -> bool:
    """Whether there are a time, text or truth that names series, and figures (anything else)."""
    figures = len(frame.fields) - len(frame.of_type("string", "boolean")) - 1
    return bool(frame.of_type("time") and frame.of_type("string", "boolean") and figures > 0)


def _wide(long: Frame) -> Frame:
    """Return a field for each figure and set of labels, null where it has no row."""
    index = long.of_type("time")[0]
    factors = long.of_type("string", "boolean")
    figures = [each for each in long.fields if each is not index and each not in factors]
    times: list[Any] = []
    found: dict[tuple[str, ...], list[Field]] = {}
    for row, at in enumerate(index.values):
        if times and at < times[-1]:
            raise Unsorted(f"{at} after {times[-1]}")
        if not times or at > times[-1]:
            times.append(at)
        key = tuple(_label(factor.values[row]) for factor in factors)
        labels = dict(zip((factor.name for factor in factors), key, strict=True))
        series = found.setdefault(key, [Field(each.name, each.type, [], labels) for each in figures])
        for one, figure in zip(series, figures, strict=True):
            one.values += [None] * (len(times) - len(one.values))
            one.values[-1] = figure.values[row]
    wide = [one for series in found.values() for one in series]
    for one in wide:
        one.values += [None] * (len(times) - len(one.values))
    wide.sort(key=lambda one: (one.name, *(one.labels or {}).values()))
    return Frame(long.name, [Field(index.name, "time", times), *wide])


def _label(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)
