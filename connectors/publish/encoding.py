"""What an events record looks like to Kafka: its value and its CloudEvents headers."""

from __future__ import annotations

from connectors.kafka.cloud_events import Headers
from connectors.kafka.encoding import Encoding
from connectors.order.records import came_at
from schemas.events import EventsRecord
from schemas.settings import Kafka


class RecordEncoding(Encoding):
    """Encodes records in the configured format."""

    def __init__(self, settings: Kafka) -> None:
        super().__init__("events", settings)

    def headers_of(self, record: EventsRecord) -> Headers:
        """Return the CloudEvents headers of a record.

        `ce_id` identifies it: replica/rank/incarnation/first sequence number, or for a record that has only
        notices `n` and the microsecond of the first one. `ce_time` is when the first batch came.
        """
        source = f"{record.replica}/{record.dp_rank}"
        came = came_at(record)
        first = f"n{int(came * 1e6)}" if record.first_seq is None else str(record.first_seq)
        return self.headers(source, f"{source}/{record.incarnation}/{first}", came)
