"""CloudEvents headers of records, in binary mode, the same on all topics for readers. No IO.

Specification: CloudEvents 1.0.2, and its binding for Kafka, section 3.2.
"""

from __future__ import annotations

from datetime import datetime, timezone
from functools import lru_cache
from hashlib import blake2b

from connectors.kafka.topics import catalogue

Headers = list[tuple[str, bytes]]
_DIGEST_BYTES = 16
_VERSION = ("ce_specversion", b"1.0")


class CloudEvents:
    """Headers of the records of one topic."""

    def __init__(self, topic: str, content_type: bytes) -> None:
        """`topic`: its key in the catalogue. The type is `kvlens.` and its name, whatever prefix is set."""
        self._common: Headers = [
            ("content-type", content_type),
            _VERSION,
            ("ce_type", f"kvlens.{catalogue()[topic].name}".encode()),
        ]

    def headers(self, source: str, identity: str, at: float | datetime) -> Headers:
        """Return the headers of a record: what it is about, its id among the records about that, its time."""
        return [
            *self._common,
            ("ce_source", source.encode()),
            ("ce_id", identity.encode()),
            ("ce_time", _rfc3339(at)),
        ]


def digest(value: bytes) -> str:
    """Return an id for a record that has no other: the same for the same value."""
    return blake2b(value, digest_size=_DIGEST_BYTES).hexdigest()


@lru_cache(maxsize=1024)  # many records are of one window
def _rfc3339(at: float | datetime) -> bytes:
    moment = at if isinstance(at, datetime) else datetime.fromtimestamp(at, timezone.utc)
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z").encode()
