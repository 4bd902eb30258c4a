"""How the value of a record is encoded, as its `content-type` header says."""

from __future__ import annotations

MSGPACK = b"application/msgpack"
JSON = b"application/json"
CONTENT_TYPES = {"msgpack": MSGPACK, "json": JSON}
"""By `kafka.record_format`."""
