"""How records for readers are written: values in the configured format, CloudEvents headers. No IO."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

import msgspec

from connectors.kafka.cloud_events import CloudEvents, Headers
from connectors.kafka.content_types import CONTENT_TYPES
from schemas.json_form import to_json
from schemas.settings import Kafka


class Encoding:
    """Of the records of one topic."""

    def __init__(self, topic: str, kafka: Kafka) -> None:
        """`topic`: its key in the catalogue."""
        self.as_json = kafka.record_format == "json"
        self.value: Callable[[msgspec.Struct], bytes] = (
            to_json if self.as_json else msgspec.msgpack.Encoder().encode
        )
        """Returns the value of a record."""
        self._events = CloudEvents(topic, CONTENT_TYPES[kafka.record_format])

    def headers(self, source: str, identity: str, at: float | datetime) -> Headers:
        """Return the headers of a record: what it is of, its id among those, and its time."""
        return self._events.headers(source, identity, at)
