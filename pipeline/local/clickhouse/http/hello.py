"""The first question of clickhouse-go, the driver of Grafana's ClickHouse plugin, over HTTP.

It asks who the server is with the `client_protocol_version` of the TCP protocol and reads that one block in
the layout of this version, which the engine cannot write. The answer says revision 0, after which the driver
reads plain Native, which the engine does write.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

from pipeline.local.clickhouse.http.request import whole_number
from pipeline.local.clickhouse.statements import calls

# From here on a column of a block says whether its serialization is a custom one.
_CUSTOM_SERIALIZATION_VERSION = 54454
# Field 1: no overflow row; field 2: no bucket (-1, 32 bits); 0: end of fields.
_BLOCK_INFO = b"\x01\x00" + b"\x02" + struct.pack("<i", -1) + b"\x00"


def hello_block(query: Mapping[str, str], statement: bytes, version: str, timezone: str) -> bytes | None:
    """Return the Native block that answers the driver's first question; None for any other question."""
    protocol = whole_number(query.get("client_protocol_version", ""))
    if not protocol or calls(statement) != {"displayname", "version", "revision", "timezone"}:
        return None
    columns = [
        (b"displayName()", b"String", _string(b"kvlens embedded")),
        (b"version()", b"String", _string(version.encode())),
        (b"revision()", b"UInt32", struct.pack("<I", 0)),
        (b"timezone()", b"String", _string(timezone.encode())),
    ]
    custom = b"\x00" if protocol >= _CUSTOM_SERIALIZATION_VERSION else b""
    block = _BLOCK_INFO + bytes([len(columns), 1])
    for name, kind, value in columns:
        block += _string(name) + _string(kind) + custom + value
    return block


def _string(value: bytes) -> bytes:
    """Length as one byte (all here are below 128), then the bytes."""
    return bytes([len(value)]) + value
