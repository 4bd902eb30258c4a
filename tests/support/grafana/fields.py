"""What Grafana's panels know of a field: its name, colour and texts, after defaults and overrides.

Rules as written in grafana/grafana, `packages/grafana-data/src`: `field/fieldOverrides.ts`
(`applyFieldOverrides`: what a transformation gave a field counts before the defaults),
`field/fieldState.ts` (`calculateFieldDisplayName`), `field/displayProcessor.ts`,
`field/templateProxies.ts`, `transformations/matchers/nameMatcher.ts` (`byName`), `utils/valueMappings.ts`;
and grafana/scenes, `FieldMacro`, which makes nothing of a label that is not there;
as stored in November 2026.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from tests.support.grafana.figures import written
from tests.support.grafana.frames import Field, Frame

VALUE = "Value"
"""A field of this name is called after its labels alone (`TIME_SERIES_VALUE_FIELD_NAME`)."""
_LABEL = re.compile(r"\$\{__field\.labels\.(\w+)\}")


def overridden(frames: Sequence[Frame], config: Mapping[str, Any]) -> list[Frame]:
    """Return frames whose fields have the panel's field config."""
    shown = copy.deepcopy(list(frames))
    for frame in shown:
        for field in frame.fields:
            field.config = copy.deepcopy({**config["defaults"], **field.config})
            if "displayName" in field.config:
                field.config["displayName"] = _labelled(field.config["displayName"], field)
            for override in config["overrides"]:
                matcher = override["matcher"]
                assert matcher["id"] == "byName"
                if matcher["options"] in (field.name, display_name(field, shown)):
                    for item in override["properties"]:
                        field.config[item["id"]] = item["value"]
    return shown


def display_name(field: Field, frames: Sequence[Frame]) -> str:
    """Return the name of a field in legends, tooltips and rows."""
    if chosen := field.config.get("displayName"):
        return str(chosen)
    if field.type == "time" and not field.labels:
        return field.name
    parts = [] if field.name == VALUE else [field.name]
    if field.labels:
        keys = {key for frame in frames for one in frame.fields for key in one.labels or {}}
        if len(keys) == 1:
            parts += [value for value in field.labels.values() if value]
        else:
            parts.append(
                "{" + ", ".join(f'{key}="{field.labels[key]}"' for key in sorted(field.labels)) + "}"
            )
    return " ".join(parts) or field.name


def text(field: Field, value: Any) -> str:
    """Return what is shown for a value: the text of its mapping, else the figure with its unit."""
    if mapped := _mapped(field, value):
        return str(mapped["text"])
    if value is None:
        return str(field.config.get("noValue", ""))
    if field.type == "number" and field.config["unit"] != "string":
        return written(float(value), field.config["unit"])
    if isinstance(value, float) and value % 1 == 0:
        return str(int(value))
    return str(value)


def colour(field: Field, value: Any = None) -> str | None:
    """Return the colour of a value or series where one is fixed; None where Grafana takes one of its own."""
    if mapped := _mapped(field, value):
        return str(mapped["color"])
    chosen = field.config["color"]
    return str(chosen["fixedColor"]) if chosen["mode"] == "fixed" else None


def links(field: Field, value: Any) -> list[str]:
    """Return where the links of a value lead, but for variables of the board and the range."""
    return [
        link["url"].replace("${__value.raw:percentencode}", quote(str(value), safe=""))
        for link in field.config.get("links", [])
    ]


def _labelled(template: str, field: Field) -> str:
    labels = field.labels or {}
    return _LABEL.sub(lambda found: labels.get(found[1], ""), template)


def _mapped(field: Field, value: Any) -> dict[str, Any] | None:
    """Return what a value is mapped to; an option is found by the text of the value."""
    if value is None:
        return None
    if isinstance(value, float) and value % 1 == 0:
        value = int(value)
    for mapping in field.config.get("mappings", []):
        if mapping["type"] == "range":
            if mapping["options"]["from"] <= value <= mapping["options"]["to"]:
                return dict(mapping["options"]["result"])
            continue
        assert mapping["type"] == "value"
        if found := mapping["options"].get(str(value)):
            return dict(found)
    return None
