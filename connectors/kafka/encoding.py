"""How records for readers are encoded, as their `content-type` says, and their CloudEvents headers. No IO."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime

import msgspec

from connectors.kafka.cloud_events import CloudEvents, Headers
from schemas.json_form import to_json
from schemas.settings import Kafka

MSGPACK = b"application/msgpack"
JSON = b"application/json"
CONTENT_TYPES = {"msgpack": MSGPACK, "json": JSON}
"""By `kafka.record_format`."""
UNDECODABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What decoding the value of a record raises: msgspec's own errors, and Python's for text that is not UTF-8
and for values nested too deeply."""
Prefixes = Mapping[str, bytes]
"""The bytes before the JSON of a record, by the name of its schema; empty without a registry."""


class Encoding:
    """How the records of one topic are encoded."""

    def __init__(self, topic: str, kafka: Kafka) -> None:
        """`topic`: its key in the catalogue."""
        self.as_json = kafka.record_format == "json"
        self.prefixes: Prefixes = {}
        """Those of the schemas in a registry; set before the first record is written."""
        self.value: Callable[[msgspec.Struct], bytes] = (
            self._json if self.as_json else msgspec.msgpack.Encoder().encode
        )
        """Returns the value of a record."""
        self._events = CloudEvents(topic, CONTENT_TYPES[kafka.record_format])

    def headers(self, source: str, identity: str, at: float | datetime) -> Headers:
        """Return the headers of a record: see `CloudEvents.headers`."""
        return self._events.headers(source, identity, at)

    def _json(self, record: msgspec.Struct) -> bytes:
        return self.prefixes.get(type(record).__name__, b"") + to_json(record)
