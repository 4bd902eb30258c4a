"""What ends an answer to a replay request."""

from __future__ import annotations

import msgspec

from connectors.replay.protocol import END_SEQUENCE, MALFORMED, parse_answer


def test_an_end_marker_may_say_what_is_kept() -> None:
    kept = msgspec.msgpack.encode([3, 9])  # ROCm ATOM's: the first and the last number
    assert parse_answer([b"", END_SEQUENCE, b""]) is None
    assert parse_answer([b"", END_SEQUENCE, kept]) is None
    assert parse_answer([b"", (9).to_bytes(8, "big"), kept]) == (9, kept)
    assert parse_answer([kept]) == MALFORMED
