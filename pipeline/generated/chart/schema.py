"""values.schema.json of the Helm chart: a misspelt value, or setting of kvlens, never reaches a cluster."""

from __future__ import annotations

from typing import Any

import msgspec

import schemas.discovery_settings
import schemas.settings
from pipeline.generated.chart.values import SecretKey, Values
from pipeline.generated.source_docs import attribute_docs, one_line
from pipeline.settings.loading import section_types
from schemas.settings import SECRET_KEYS

SET_BY_THE_CHART = {
    "connector": ("shard", "metrics_host", "metrics_port"),
    "worker": ("metrics_host", "metrics_port"),
    "page": ("host", "port"),
    "index": ("host", "port", "share"),
}
"""Settings that follow from other values."""


def values_schema() -> dict[str, Any]:
    """Return the schema (draft 2020-12); its `config` takes neither secrets nor what the chart sets."""
    (_, definitions) = msgspec.json.schema_components([Values, SecretKey], ref_template="#/$defs/{name}")
    for name, meanings in attribute_docs(schemas.settings, schemas.discovery_settings).items():
        for setting, meaning in meanings.items():
            if meaning and setting in definitions.get(name, {}).get("properties", {}):
                definitions[name]["properties"][setting]["description"] = meaning
    for section, kind in section_types().items():
        properties = definitions[kind.__name__]["properties"]
        for setting in properties.copy():
            if (section, setting) in SECRET_KEYS or setting in SET_BY_THE_CHART.get(section, ()):
                del properties[setting]
    definitions["Secrets"]["properties"]["files"] = _files()
    for definition in definitions.values():
        if "description" in definition:
            definition["description"] = one_line(definition["description"])
    top = definitions.pop("Values")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **top, "$defs": definitions}


def file_settings(section: str) -> list[str]:
    """Return the settings of a section that name a file: those of secrets have `_file` behind the key."""
    fields = section_types()[section].__struct_fields__
    secret = [f"{setting}_file" for setting in fields if (section, setting) in SECRET_KEYS]
    return [*secret, *(setting for setting in fields if setting.endswith("file"))]


def _files() -> dict[str, Any]:
    sections = {name: keys for name in section_types() if (keys := file_settings(name))}
    return {
        "type": "object",
        "properties": {
            name: {
                "type": "object",
                "properties": {key: {"$ref": "#/$defs/SecretKey"} for key in keys},
                "additionalProperties": False,
            }
            for name, keys in sections.items()
        },
        "required": [*sections],
        "additionalProperties": False,
    }
