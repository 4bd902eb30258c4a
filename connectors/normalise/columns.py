"""Rows of what the scanner says of payloads: column i is payload i."""

from __future__ import annotations

STATUS, SEQ, FINGERPRINT, EVENTS, START, END, STRETCH_END, PAYLOAD_BYTES, PUBLISHED_AT = range(9)
ROWS = 9

GAVE_UP, DONE = 0, 1
"""Values of STATUS."""
