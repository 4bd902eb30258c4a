"""What a panel of Grafana gets of another panel's result, and what transformations make of it.

Rules as written in grafana/grafana, `public/app/plugins/datasource/dashboard/datasource.ts` (what a
query without `withTransforms` gets) and, in `packages/grafana-data/src/transformations`,
`transformers/filterByValue.ts`, `matchers/valueMatchers/equalMatchers.ts`, `transformers/organize.ts` (leave
out, order, rename),
`transformers/order.ts` (by `indexByName` only if `fieldOrder` is `manual`), `transformers/rename.ts`;
as stored in November 2026.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from tests.support.grafana.fields import display_name
from tests.support.grafana.frames import Field, Frame

OF_ANOTHER_PANEL = "-- Dashboard --"


def asking(board: Mapping[str, Any], panel: Mapping[str, Any]) -> dict[str, Any]:
    """Return the only query whose result a panel shows: its own, or that of the panel it names."""
    (query,) = panel["targets"]
    if panel["datasource"]["uid"] != OF_ANOTHER_PANEL:
        return dict(query)
    assert query["datasource"] == panel["datasource"]
    assert not query["withTransforms"]
    (source,) = [each for each in board["panels"] if each["id"] == query["panelId"]]
    (asked,) = source["targets"]
    assert source["datasource"]["uid"] != OF_ANOTHER_PANEL
    return dict(asked)


def transformed(frames: Sequence[Frame], transformations: Sequence[Mapping[str, Any]]) -> list[Frame]:
    """Return what the transformations make of frames; fails for one that no board here has."""
    found = copy.deepcopy(list(frames))
    for each in transformations:
        change = {"filterByValue": _filtered, "organize": _organized}[each["id"]]
        found = [change(frame, each["options"]) for frame in found]
    return found


def _filtered(frame: Frame, options: Mapping[str, Any]) -> Frame:
    assert (options["type"], options["match"]) == ("include", "all")
    (one,) = options["filters"]
    assert one["config"]["id"] == "equal"
    by = [field for field in frame.fields if display_name(field, [frame]) == one["fieldName"]]
    if not by:
        return Frame(frame.name, [_of(field, []) for field in frame.fields])
    rows = [row for row, value in enumerate(by[0].values) if value == one["config"]["options"]["value"]]
    return Frame(frame.name, [_of(field, [field.values[row] for row in rows]) for field in frame.fields])


def _organized(frame: Frame, options: Mapping[str, Any]) -> Frame:
    left_out = {name for name, out in options["excludeByName"].items() if out}
    kept = [field for field in frame.fields if display_name(field, [frame]) not in left_out]
    if options.get("fieldOrder") == "manual":
        places = options["indexByName"]
        kept.sort(key=lambda field: places.get(display_name(field, [frame]), 2**53))
    for field in kept:
        if name := options["renameByName"].get(display_name(field, [frame])):
            field.config["displayName"] = name
    return Frame(frame.name, kept)


def _of(field: Field, values: list[Any]) -> Field:
    return Field(field.name, field.type, values, field.labels, field.config)
