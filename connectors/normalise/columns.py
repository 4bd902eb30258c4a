"""Rows of what the scanner says of payloads: column i is payload i."""

from __future__ import annotations

STATUS, SEQ, FINGERPRINT, EVENTS, START, END, STRETCH_END, PAYLOAD_BYTES, PUBLISHED_AT, SKIPPED, RANK = range(
    11
)
ROWS = 11
NO_RANK = -1
"""RANK of a batch that says none, or says it in another way than every engine does."""
MAX_RANK = (1 << 16) - 1
"""A greater number is none of a rank, and may be anything: it goes no further."""

GAVE_UP, DONE = 0, 1
"""Values of STATUS."""
