"""The OpenAPI document of the index, from the types that it reads and writes."""

from __future__ import annotations

from typing import Any, get_args

import msgspec

from pipeline.index.answers import ChoicesResponse, Problem, PromptsResponse, QueryResponse, ReplicasResponse
from pipeline.index.choices.posted import Choices
from pipeline.index.questions.question import Question
from schemas.reasons import QuestionRefusal

CONTRACT_VERSION = "1.2.0"
_REFERENCE = "#/components/schemas/{name}"
_TYPES = (Question, QueryResponse, PromptsResponse, Choices, ChoicesResponse, ReplicasResponse, Problem)


def document() -> dict[str, Any]:
    """Return the whole document, JSON-ready."""
    _, components = msgspec.json.schema_components(_TYPES, ref_template=_REFERENCE)
    components["Problem"]["properties"]["error"]["enum"] = [*get_args(QuestionRefusal)]
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "kvlens index",
            "version": CONTRACT_VERSION,
            "description": "Which replica holds how much of the beginning of a prompt, tier by tier. The "
            "shape of `/query_by_hash` is that of Mooncake RFC #1403 as Dynamo's standalone indexer serves "
            "it, with more in it.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": _paths(),
        "components": {
            "schemas": {name: components[name] for name in sorted(components)},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"token": []}],
    }


def _paths() -> dict[str, Any]:
    return {
        "/query_by_hash": {
            "post": {
                "operationId": "query_by_hash",
                "summary": "Who holds a beginning of these prompts.",
                "requestBody": {"required": True, "content": _json("Question")},
                "responses": {
                    "200": {
                        "description": "With `prompts` a PromptsResponse, else a QueryResponse.",
                        "content": _json("QueryResponse", "PromptsResponse"),
                    },
                    **_problems("400", "401", "404", "408", "413", "503"),
                },
            }
        },
        "/choices": {
            "post": {
                "operationId": "choices",
                "summary": "Where a router sent requests: each is compared with the best match "
                "and written to Kafka. Only with `index.choices`.",
                "requestBody": {"required": True, "content": _json("Choices")},
                "responses": {
                    "200": {
                        "description": "Kafka has acknowledged all of them.",
                        "content": _json("ChoicesResponse"),
                    },
                    **_problems("400", "401", "404", "408", "413", "503"),
                },
            }
        },
        "/replicas": {
            "get": {
                "operationId": "replicas",
                "summary": "Every event stream that the index follows.",
                "responses": {
                    "200": {"description": "All of them.", "content": _json("ReplicasResponse")},
                    **_problems("401", "503"),
                },
            }
        },
        "/healthz": {"get": _page("healthz", "The process turns.")},
        "/livez": {"get": _page("livez", "The same.")},
        "/readyz": {"get": _page("readyz", "It has caught up with the log; 503 says why not.", "503")},
        "/metrics": {"get": _page("metrics", "Metrics in Prometheus' text format.")},
        "/openapi.json": {
            "get": {
                "operationId": "openapi",
                "summary": "This document.",
                "security": [{}],
                "responses": {"200": {"description": "This document.", "content": {"application/json": {}}}},
            }
        },
    }


def _json(*names: str) -> dict[str, Any]:
    references = [{"$ref": _REFERENCE.format(name=name)} for name in names]
    return {"application/json": {"schema": references[0] if len(names) == 1 else {"oneOf": references}}}


def _problems(*statuses: str) -> dict[str, Any]:
    return {status: {"description": "No answer.", "content": _json("Problem")} for status in statuses}


def _page(name: str, summary: str, *statuses: str) -> dict[str, Any]:
    answer = {"description": summary, "content": {"text/plain": {}}}
    responses = dict.fromkeys(("200", *statuses), answer)
    return {"operationId": name, "summary": summary, "security": [{}], "responses": responses}
