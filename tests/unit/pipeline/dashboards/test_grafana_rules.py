"""The rules by which Grafana reads a result (`tests/support/grafana`), on right and wrong shapes."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from tests.support.grafana import panels, rules
from tests.support.grafana.figures import written
from tests.support.grafana.frames import Frame, Unconverted, Unsorted, field_type, frames

AT = [datetime(2026, 1, 1) + timedelta(minutes=minute) for minute in range(3)]
HEATMAP = {
    "options": {"calculate": False, "yAxis": {"unit": "s"}},
    "fieldConfig": {"defaults": {"unit": "s", "color": {"mode": "palette-classic"}}, "overrides": []},
}


def framed(columns: dict[str, str], rows: list[tuple[Any, ...]]) -> list[Frame]:
    return frames(list(columns), list(columns.values()), rows, form=0, ref_id="A")


def shown(found: list[Frame], **defaults: Any) -> list[str]:
    config = {"unit": "short", "color": {"mode": "palette-classic"}, "custom": {"stacking": {"mode": "none"}}}
    panel = {"fieldConfig": {"defaults": config | defaults, "overrides": []}}
    return [series.name for series in panels.series(panel, found)]


def test_types_are_those_of_the_plugin() -> None:
    expected = {
        "UInt64": "number",
        "Nullable(Float64)": "number",
        "DateTime('UTC')": "time",
        "Nullable(DateTime64(3, 'UTC'))": "time",
        "LowCardinality(String)": "string",
        "LowCardinality(Nullable(String))": "string",
        "Enum8('complete' = 1)": "string",
        "Bool": "boolean",
        "Array(UInt64)": "other",
    }
    assert {name: field_type(name) for name in expected} == expected
    with pytest.raises(Unconverted):
        field_type("AggregateFunction(sum, UInt64)")


def test_a_long_result_becomes_a_field_for_each_label_and_is_null_where_it_has_no_row() -> None:
    (frame,) = framed(
        {"time": "DateTime", "medium": "String", "tokens": "Float64"},
        [(AT[0], "gpu", 1.0), (AT[1], "cpu", 2.0), (AT[1], "gpu", 3.0), (AT[2], "cpu", 4.0)],
    )
    assert [(field.labels, field.values) for field in frame.fields] == [
        (None, AT),
        ({"medium": "cpu"}, [None, 2.0, 4.0]),
        ({"medium": "gpu"}, [1.0, 3.0, None]),
    ]
    assert shown([frame]) == ["tokens cpu", "tokens gpu"]
    assert shown([frame], displayName="${__field.labels.medium}") == ["cpu", "gpu"]


def test_a_result_without_texts_stays_as_it_is() -> None:
    (frame,) = framed({"time": "DateTime", "b": "UInt8", "a": "UInt8"}, [(AT[0], 1, 2)])
    assert shown([frame]) == ["b", "a"]


def test_a_long_result_must_not_go_back_in_time() -> None:
    columns = {"time": "DateTime", "name": "String", "value": "UInt8"}
    with pytest.raises(Unsorted):
        framed(columns, [(AT[1], "a", 1), (AT[0], "a", 1)])
    assert framed(columns, []) == []


def test_buckets_that_are_numbers_are_drawn_as_a_row_called_bucket() -> None:
    wrong = framed({"time": "DateTime", "bucket": "Float64", "value": "Float64"}, [(AT[0], 16.0, 5.0)])
    assert [row.label for row in panels.heat_rows(HEATMAP, wrong)] == ["bucket", "value"]


@pytest.mark.parametrize(
    ("figure", "labels"), [("Value", ["2 s", "16 s"]), ("value", ["value 16", "value 2"])]
)
def test_rows_of_a_heatmap_are_sorted_and_have_units_if_their_names_are_numbers(
    figure: str, labels: list[str]
) -> None:
    found = framed(
        {"time": "DateTime", "le": "String", figure: "Float64"}, [(AT[0], "16", 5), (AT[0], "2", 6)]
    )
    assert [row.label for row in panels.heat_rows(HEATMAP, found)] == labels


def test_a_timeline_of_texts_has_their_columns_for_lanes() -> None:
    found = framed({"time": "DateTime", "source": "String", "state": "String"}, [(AT[0], "a/0", "partial")])
    panel = {"fieldConfig": HEATMAP["fieldConfig"]}
    assert [lane.name for lane in panels.lanes(panel, found)] == ["source", "state"]


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (4560.33, "suffix:tokens/s", "4560 tokens/s"),
        (4560.33, "count:tokens/s", "4.56K tokens/s"),
        (0.5, "count:tokens/s", "0.5 tokens/s"),
        (0.5, "si:tokens/s", "500 dtokens/s"),
        (4560.33, "si:tokens/s", "4.56 datokens/s"),
        (0, "count:tokens/s", "0 tokens/s"),
        (1_280_000, "short", "1.28 Mil"),
        (0.931, "percentunit", "93.1%"),
        (3 * 2**30, "bytes", "3 GiB"),
        (0.25, "s", "250 ms"),
        (90, "s", "1.5 min"),
    ],
)
def test_a_figure_is_scaled(value: float, unit: str, text: str) -> None:
    assert written(value, unit) == text


def test_a_rule_needs_one_figure_and_texts() -> None:
    rule = {
        "annotations": {"summary": "{{ $labels.model }}: {{ $values.B }} at {{ $labels.nobody }}"},
        "data": [
            {},
            {"model": {"reducer": "last"}},
            {"model": {"conditions": [{"evaluator": {"type": "gt", "params": [0.25]}}]}},
        ],
    }
    rows = [("m", 0.5), ("n", 0.25)]
    table = frames(["model", "value"], ["String", "Float64"], rows, form=1, ref_id="A")
    one, other = rules.instances(rule, table, "http://x/")
    assert one == ({"model": "m"}, 0.5, True, {"summary": "m: 0.5 at [no value]"})
    assert not other.fires
    with pytest.raises(rules.NoNumbers):
        rules.instances(
            rule, frames(["a", "b"], ["UInt8", "UInt8"], [(1, 2)], form=1, ref_id="A"), "http://x/"
        )
