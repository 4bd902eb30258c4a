"""JSON Schema (draft 2020-12) of each Kafka record.

The schema describes the JSON form. In MessagePack, what is marked `x-packed` is bytes (in JSON a list, or a
hash in digits: `schemas.json_form`), and so is what is base64 in JSON; the rest is the same.
"""

from __future__ import annotations

import re
from typing import Any, get_args

import msgspec

import schemas.reasons
from pipeline.generated.figures import said_of_figures, unit_of
from pipeline.generated.records import JSON_FORM, Record, field_docs
from pipeline.generated.source_docs import one_line
from schemas.json_form import COLUMNS, DIGITS, HASH

_OF_FIGURES = said_of_figures()
REASON_REFERENCE = re.compile(r"see `schemas\.reasons\.(\w+)`")


def record_schema(record: Record) -> dict[str, Any]:
    """Return the schema of one record; the structs it uses are in `$defs`, sorted by name."""
    _, components = msgspec.json.schema_components([record], ref_template="#/$defs/{name}")
    for name, component in components.items():
        describe(component, field_docs(name))
        if record in JSON_FORM:
            for name, field in component.get("properties", {}).items():
                component["properties"][name] = _listed(name, field)
    top = components.pop(record.__name__)
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:kvlens:schema:{record.__name__}",
        **top,
    }
    if record.__name__ in _OF_FIGURES:
        schema |= _OF_FIGURES[record.__name__]
        for column, field in schema["properties"].items():
            if unit := unit_of(column):
                field["x-unit"] = unit
    if components:
        schema["$defs"] = {name: components[name] for name in sorted(components)}
    return schema


def _listed(name: str, field: dict[str, Any]) -> dict[str, Any]:
    """Return what a field is in JSON: packed columns are lists, a hash is digits."""
    if name == HASH and "anyOf" in field:
        digits = {"type": "string", "pattern": DIGITS, "x-packed": True}
        return {**field, "anyOf": [digits if "contentEncoding" in part else part for part in field["anyOf"]]}
    if name not in COLUMNS or field.get("contentEncoding") != "base64":
        return field
    listed = {"type": "array", "items": COLUMNS[name].item, "x-packed": True}
    told = {key: value for key, value in field.items() if key in ("description", "default")}
    return {**listed, **({**told, "default": []} if "default" in told else told)}


def with_reasons(meaning: str) -> str:
    """Return the meaning with a reference to a type of reasons replaced by its values."""
    return REASON_REFERENCE.sub(_one_of, meaning)


def _one_of(reference: re.Match[str]) -> str:
    reasons = get_args(getattr(schemas.reasons, reference[1]))
    return "one of " + ", ".join(f"`{reason}`" for reason in reasons)


def describe(component: dict[str, Any], docs: dict[str, str]) -> None:
    """Put the meanings of a type, and those of its fields, into its schema."""
    if "description" in component:
        component["description"] = one_line(component["description"])
    for name, meaning in docs.items():
        if meaning and name in component.get("properties", {}):
            component["properties"][name]["description"] = with_reasons(meaning)
    if "prefixItems" in component:  # a struct encoded as an array: its fields have a position, not a name
        for item, (name, meaning) in zip(component["prefixItems"], docs.items(), strict=True):
            item |= {"title": name, "description": with_reasons(meaning)}
