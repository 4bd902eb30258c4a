"""How the value of a record is encoded, as its `content-type` header says."""

from __future__ import annotations

import msgspec

MSGPACK = b"application/msgpack"
JSON = b"application/json"
CONTENT_TYPES = {"msgpack": MSGPACK, "json": JSON}
"""By `kafka.record_format`."""
UNDECODABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What decoding the value of a record raises: besides its own, msgspec lets text that is not UTF-8 and values
nested without end come through as Python's."""
