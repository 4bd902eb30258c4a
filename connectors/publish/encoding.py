"""What an events record looks like to Kafka: its value and its CloudEvents headers."""

from __future__ import annotations

from datetime import datetime, timezone

import msgspec

from connectors.kafka.content_types import CONTENT_TYPES
from connectors.order.records import came_at
from schemas.events import EventsRecord
from schemas.settings import Kafka

RECORD_TYPE = "kvlens.events.v1"
"""CloudEvents type; the topic's name may carry another prefix."""

_ENCODED_TYPE = RECORD_TYPE.encode()

Headers = list[tuple[str, bytes]]


class RecordEncoding:
    """Encodes records in the configured format."""

    def __init__(self, settings: Kafka) -> None:
        as_json = settings.record_format == "json"
        self.value = msgspec.json.Encoder().encode if as_json else msgspec.msgpack.Encoder().encode
        """Returns the value of a record."""
        self._content_type = CONTENT_TYPES[settings.record_format]

    def headers(self, record: EventsRecord) -> Headers:
        return record_headers(record, self._content_type)


def record_headers(record: EventsRecord, content_type: bytes) -> Headers:
    """Return the CloudEvents headers (Kafka protocol binding, binary mode).

    `ce_id` identifies the record: replica/rank/incarnation/first sequence number, or for a record that has
    only notices `n` and the microsecond of the first one. `ce_time` is when the first
    batch came, in RFC 3339.
    """
    source = f"{record.replica}/{record.dp_rank}"
    came = came_at(record)
    if record.first_seq is None:
        first = f"n{int(came * 1e6)}"
    else:
        first = str(record.first_seq)
    return [
        ("content-type", content_type),
        ("ce_specversion", b"1.0"),
        ("ce_type", _ENCODED_TYPE),
        ("ce_source", source.encode()),
        ("ce_id", f"{source}/{record.incarnation}/{first}".encode()),
        ("ce_time", _rfc3339(came)),
    ]


def _rfc3339(seconds: float) -> bytes:
    moment = datetime.fromtimestamp(seconds, timezone.utc)
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z").encode()
