"""OpenAPI document of the index, with the meanings that are written beside its types."""

from __future__ import annotations

from typing import Any

from pipeline.generated.json_schema import describe
from pipeline.generated.source_docs import attribute_docs
from pipeline.index import answers
from pipeline.index.choices import posted
from pipeline.index.openapi import document
from pipeline.index.questions import question


def openapi_document() -> dict[str, Any]:
    """Return the whole document, JSON-ready."""
    whole = document()
    docs = attribute_docs(answers) | attribute_docs(question) | attribute_docs(posted)
    for name, component in whole["components"]["schemas"].items():
        describe(component, docs[name])
    return whole
