"""Envelopes of batches, and bounds of their events.

Token ids, salts and multimodal keys stay undecoded unless they are hashed.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import Meta, Raw, Struct

from schemas.hashes import HASH_BYTES

# Beyond these bounds a payload is refused as `frame_too_large`, however short it is.
MAX_BATCH_BYTES = 3 << 20
"""Packed size beyond which a batch is replaced by `frame_too_large`: 400,000 blocks in one engine step."""
LARGE_PAYLOAD_BYTES = 128 << 10
"""Longer payloads are scanned singly, and their batches measured: no number of shorter ones that are scanned
together makes a batch too large. They are decoded event by event only where they are not well-formed: the
next shorter one shows as much of the engine."""
MAX_BATCH_HASHES = MAX_BATCH_BYTES // HASH_BYTES
"""More hashes cannot fit, so they are not decoded. On the wire a hash may be a single byte."""
MAX_ONE_BY_ONE = 8_192
"""Events of a batch that are decoded one by one, at some microseconds each."""
MAX_WITHOUT_SCANNER = 1 << 17
"""The same before the scanner is compiled: a second or two, in the first seconds of a process."""
STRETCH_EVENTS = 256
"""Events of a longer batch that are decoded together as long as all of them are well-formed."""
MAX_POSITIONS = 64
"""Elements of an event in array form that are looked at; no engine has a quarter of them."""

MAX_BLOCK_SIZE = (1 << 32) - 1
MAX_GROUP_IDX = (1 << 16) - 1
MAX_TEXT = 1_024
"""Most characters of any text that is kept. No medium, adapter or kind of attention has so long a name."""

ABSENT = Raw()
"""Stands for a field that the event does not have; no MessagePack value is empty."""

Text = Annotated[str, Meta(max_length=MAX_TEXT)]


class EnvelopeArray(Struct, array_like=True, gc=False):
    """`[ts, events, data_parallel_rank, ...]`."""

    ts: Raw
    events: Raw
    rank: Raw = ABSENT


class EnvelopeMap(Struct, gc=False):
    """`{"ts": ..., "events": ..., ...}`, whose rank is not read."""

    ts: Raw
    events: Raw
    rank: ClassVar[Raw] = ABSENT
