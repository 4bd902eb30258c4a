"""Rows of the result of `connectors.scanner.scan`, whose column i says what became of payload i.

These numbers are part of the scanner's compiled code, which is kept: touch `scanner.py` when they change.
"""

from __future__ import annotations

STATUS, SEQ, MARK, EVENTS, START, END, STRETCH_END, PAYLOAD_BYTES = range(8)
ROWS = 8

GAVE_UP, DONE = 0, 1
"""Values of STATUS."""
