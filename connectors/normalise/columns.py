"""Rows of the scanner's table of results: column i is payload i."""

from __future__ import annotations

STATUS, SEQ, FINGERPRINT, EVENTS, START, END, STRETCH_END, PAYLOAD_BYTES, PUBLISHED_AT, SKIPPED, RANK = range(
    11
)
ROWS = 11
NO_RANK = -1
"""RANK of a batch that gives none, or gives it in a way that no engine does."""
MAX_RANK = (1 << 16) - 1
"""A greater number is not a rank, and may be anything: it is not forwarded."""

GAVE_UP, DONE = 0, 1
"""Values of STATUS."""
