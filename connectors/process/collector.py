"""How often Python's garbage collector runs."""

from __future__ import annotations

from typing import Final

GC_THRESHOLD: Final = 50_000
"""Allocations between collections. Records, rows and answers hold no cycles, nor does what a recount keeps:
running it more often only costs time."""
GC_THRESHOLDS: Final = (5 * GC_THRESHOLD, 20, 50)
"""For processes that keep much for long, where a full collection costs most. First the allocations between
two collections: so many that most of what a fetch brings and a round writes is freed by then; then how many
collections of the youngest generation come between two of the next, and of that one between two full ones."""
