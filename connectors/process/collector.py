"""How often Python's collector of cycles looks."""

from __future__ import annotations

from typing import Final

GC_THRESHOLD: Final = 50_000
"""Allocations between collections. Records, rows and answers hold no cycles, nor does what a recount keeps:
looking more often only costs time."""
GC_THRESHOLDS: Final = (GC_THRESHOLD, 20, 50)
"""The same, then collections of the young between two of those that survived one, and of these between two of
all: for processes that keep much for long, so that looking at all of it costs most."""
