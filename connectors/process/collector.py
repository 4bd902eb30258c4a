"""How often Python's collector of cycles looks."""

from __future__ import annotations

from typing import Final

GC_THRESHOLD: Final = 50_000
"""Allocations between collections. Records, rows and answers hold no cycles, nor does what a recount keeps:
looking more often only costs time."""
GC_THRESHOLDS: Final = (5 * GC_THRESHOLD, 20, 50)
"""For processes that keep much for long, so that looking at all of it costs most: allocations between
collections, so many that what a fetch brings and a round writes is mostly gone by itself before; then
collections of the young between two of those that survived one, and of these between two of all."""
