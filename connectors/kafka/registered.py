"""What of the schemas of records a registry gets, and under which subject. No IO but of our own files."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

from connectors.kafka.topics import topic_name
from schemas.figures import FIGURES
from schemas.settings import Kafka

SCHEMAS = {
    "events": ("EventsRecord",),
    "residency": ("ResidencyRecord",),
    "choices": ("ChoiceRecord",),
    "figures": tuple(sorted(figure.__name__ for figure in FIGURES.values())),
}
"""By topic."""


def subject_of(kafka: Kafka, topic: str, schema: str) -> str:
    """Return what a schema is registered under.

    `TOPIC-value`, as readers expect by default; where a topic has several, `TOPIC-SCHEMA`.
    """
    return f"{topic_name(kafka, topic)}-{'value' if len(SCHEMAS[topic]) == 1 else schema}"


def registered_form(schema: str) -> dict[str, Any]:
    """Return the generated schema as it is registered: with no room for fields that nobody writes now.

    A field that a later version adds is then compatible by the rule that registries begin with, BACKWARD.
    Where any field may come, it is not: older records might have it already, with another meaning.
    """
    file = files("schemas") / "generated" / f"{schema}.schema.json"
    found: dict[str, Any] = json.loads(file.read_text("utf-8"), object_hook=_closed)
    # Karapace loses what `#/$defs` refers to behind a URN, and answers 500 to the second version of a schema.
    del found["$id"]
    return found


def _closed(part: dict[str, Any]) -> dict[str, Any]:
    # A property may be called `properties`, but not one of ours.
    return part | {"additionalProperties": False} if "properties" in part else part
