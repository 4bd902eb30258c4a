"""Bounded reasons: every loss, skip and end has exactly one of these names."""

from typing import Literal

UndecodableReason = Literal[
    "frame_count",  # not topic, sequence, payload
    "bad_seq",  # sequence frame is not eight bytes
    "frame_too_large",
    "not_msgpack",  # payload is no valid MessagePack, or not one value
    "not_an_envelope",  # neither [ts, events, ...] nor {"ts":, "events":}
    "bad_timestamp",
    "missing_type",  # an event without a type
    "type_not_string",
    "unknown_type",
    "truncated_tuple",  # an array event shorter than its required fields
    "missing_field",
    "bad_block_hashes",  # not a list
    "nil_hash",
    "bad_hash_type",
    "bad_hash_length",
    "bad_parent_hash",
    "bad_block_size",
    "bad_medium",
    "bad_group",
    "bad_field_type",  # any other field of a wrong type
    "invalid_utf8",
]

GapReason = Literal[
    "replay_not_configured",
    "replay_not_attempted",
    "replay_truncated",
    "replay_holes",
    "replay_timeout",
    "hand_over_full",
]

ClosedReason = Literal["restarted", "removed", "shutdown", "silent"]
