"""What one payload may cost. Beyond these bounds it is refused as `frame_too_large`, short as it may be."""

from __future__ import annotations

from schemas.hashes import HASH_BYTES

MAX_BATCH_BYTES = 3 << 20
"""Packed size beyond which a batch is replaced by `frame_too_large`: 400,000 blocks in one engine step."""
MAX_BATCH_HASHES = MAX_BATCH_BYTES // HASH_BYTES
"""More hashes cannot fit, so they are not decoded. On the wire a hash may be a single byte."""
MAX_ONE_BY_ONE = 8_192
"""Events of a batch that are decoded one by one, at some microseconds each."""
STRETCH_EVENTS = 256
"""Events of a longer batch that are decoded together as long as all of them are well-formed."""
MAX_POSITIONS = 64
"""Elements of an event in array form that are looked at; no engine has a quarter of them."""
