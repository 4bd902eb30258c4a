"""Registers the schemas of records in a registry with Confluent's REST API: at the start, and never after.

Protocol: Confluent Schema Registry API, "Subjects" (Karapace and Apicurio's `ccompat` have it as well).
"""

from __future__ import annotations

import asyncio
import json
import ssl
from dataclasses import field
from importlib.resources import files
from typing import Any
from urllib.parse import quote

import aiohttp
import msgspec

from connectors.kafka.encoding import UNDECODABLE, Prefixes
from connectors.kafka.errors import failure_reason
from connectors.kafka.security import trusted
from connectors.kafka.topics import topic_name
from connectors.process.addresses import printable
from connectors.process.errors import OperatorError
from connectors.process.login_files import Unreadable, basic, text_of
from schemas.figures import FIGURES
from schemas.settings import Kafka
from schemas.wire_prefix import prefix

SCHEMAS = {
    "events": ("EventsRecord",),
    "residency": ("ResidencyRecord",),
    "choices": ("ChoiceRecord",),
    "figures": tuple(sorted(figure.__name__ for figure in FIGURES.values())),
}
"""Those that are registered, by topic."""
ANSWER_SECONDS = 10.0
"""How long the registry may take to answer."""
MAX_ANSWER_BYTES = 64 << 10
LARGEST_ID = 2**32 - 1
MAX_REASON = 300
"""Characters of a registry's message that go into an error."""
TYPE = "application/vnd.schemaregistry.v1+json"


class RegistryUnreachable(OperatorError):
    """The registry does not answer, or fails."""

    heals = True
    again_seconds = 2.0
    url: str
    reason: str
    line = (
        "no schema registry answers at {url} ({reason}); start it, correct kafka.schema_registry_url, "
        "or empty it to write without"
    )


class RegistryRefused(OperatorError):
    """The registry refuses the login, or this user may not register a schema."""

    again_seconds = 60.0
    url: str
    reason: str
    heals: bool = field(default=False, kw_only=True)
    line = (
        "the schema registry at {url} refuses: {reason}; check kafka.schema_registry_username and its "
        "password, and the rights of that user"
    )


class SchemaRefused(OperatorError):
    """The registry does not take a schema: by the subject's rules it is incompatible with the one before."""

    subject: str
    schema: str
    reason: str
    line = (
        "the schema registry does not take {schema} for the subject {subject}: {reason}; nothing was "
        "written. Change the subject's compatibility, or empty kafka.schema_registry_url"
    )


async def prefixes(kafka: Kafka, *topics: str) -> Prefixes:
    """Return the prefixes of what is written as JSON to topics, named by their keys in the catalogue.

    A schema that the registry lacks is registered. Raises RegistryUnreachable, RegistryRefused, SchemaRefused
    and CertificateUnreadable.
    """
    as_json = [topic for topic in topics if kafka.record_format == "json" or topic == "figures"]
    if not kafka.schema_registry_url or not as_json:
        return {}
    headers = {"Accept": TYPE, "Content-Type": TYPE, **_login(kafka)}
    async with aiohttp.ClientSession(
        headers=headers, timeout=aiohttp.ClientTimeout(ANSWER_SECONDS)
    ) as client:
        registry = _Registry(kafka, client)
        return {
            schema: prefix(await registry.id_of(subject_of(kafka, topic, schema), schema))
            for topic in as_json
            for schema in SCHEMAS[topic]
        }


class _Registry:
    def __init__(self, kafka: Kafka, client: aiohttp.ClientSession) -> None:
        self._url = kafka.schema_registry_url.rstrip("/")
        self._client = client
        self._may_heal = bool(kafka.schema_registry_password_file)
        https = self._url.startswith("https:")
        self._tls: ssl.SSLContext | bool = trusted(kafka) if https else True

    async def id_of(self, subject: str, schema: str) -> int:
        """Return the id of a schema of ours, which is registered if it is not yet."""
        of_subject = f"/subjects/{quote(subject, safe='')}"
        body = {"schemaType": "JSON", "schema": json.dumps(registered_form(schema))}
        status, answer = await self._post(of_subject, body)
        if status == 404:
            status, answer = await self._post(f"{of_subject}/versions", body)
        if status in (409, 422):
            raise SchemaRefused(subject, schema, _said(status, answer))
        found = answer.get("id")
        if status != 200 or not isinstance(found, int) or not 0 <= found <= LARGEST_ID:
            raise RegistryUnreachable(self._url, _said(status, answer))
        return found

    async def _post(self, path: str, body: dict[str, str]) -> tuple[int, dict[str, Any]]:
        try:
            async with self._client.post(
                self._url + path, json=body, ssl=self._tls, allow_redirects=False
            ) as answer:
                read = await _at_most(answer.content)
        except (aiohttp.ClientError, OSError, asyncio.TimeoutError) as error:
            raise RegistryUnreachable(self._url, failure_reason(error)) from error
        try:
            found = msgspec.json.decode(read)
        except UNDECODABLE:
            found = None
        told = found if isinstance(found, dict) else {}
        if answer.status in (401, 403):
            raise RegistryRefused(self._url, _said(answer.status, told), heals=self._may_heal)
        return answer.status, told


async def _at_most(content: aiohttp.StreamReader) -> bytes:
    try:
        return await content.readexactly(MAX_ANSWER_BYTES)
    except asyncio.IncompleteReadError as whole:
        return whole.partial


def _said(status: int, answer: dict[str, Any]) -> str:
    message = printable(str(answer.get("message", ""))[:MAX_REASON])
    return f"HTTP {status}{message and f', {message}'}"


def _login(kafka: Kafka) -> dict[str, str]:
    """Return the header of basic authentication, if there is a user."""
    if not kafka.schema_registry_username:
        return {}
    file = kafka.schema_registry_password_file
    try:
        password = text_of(file) if file else ""
    except Unreadable as error:
        raise RegistryRefused(kafka.schema_registry_url, f"{file}: {error}", heals=True) from error
    return {"Authorization": basic(kafka.schema_registry_username, password)}


def subject_of(kafka: Kafka, topic: str, schema: str) -> str:
    """Return the subject that a schema is registered under.

    `TOPIC-value`, as readers expect by default; where a topic has several, `TOPIC-SCHEMA`.
    """
    return f"{topic_name(kafka, topic)}-{'value' if len(SCHEMAS[topic]) == 1 else schema}"


def registered_form(schema: str) -> dict[str, Any]:
    """Return the generated schema as it is registered: without additional properties.

    A field that a later version adds is then compatible by the default rule of registries, BACKWARD. If any
    field were allowed, it would not be: older records might have it already, with another meaning.
    """
    file = files("schemas") / "generated" / f"{schema}.schema.json"
    found: dict[str, Any] = json.loads(file.read_text("utf-8"), object_hook=_closed)
    # With a URN as id, Karapace does not resolve `#/$defs`, and answers 500 to a schema's second version.
    del found["$id"]
    return found


def _closed(part: dict[str, Any]) -> dict[str, Any]:
    # A property could itself be called `properties`; none of ours is.
    return part | {"additionalProperties": False} if "properties" in part else part
