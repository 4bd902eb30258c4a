"""How often Python's collector of cycles looks."""

from __future__ import annotations

from typing import Final

GC_THRESHOLD: Final = 50_000
"""Allocations between collections. Records, rows and answers hold no cycles, nor does what a recount keeps:
looking more often only costs time."""
