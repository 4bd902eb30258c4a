"""What is resident of one source."""

from __future__ import annotations

from typing import NamedTuple


class Occupancy(NamedTuple):
    """What is resident at one granularity of one medium and group."""

    medium: str
    group_idx: int
    block_size: int
    entries: int
    blocks: int
    tokens: int
    covered_blocks: int
    store_only: bool
    """The figures are upper bounds: what leaves is not announced."""
    at_least: bool
    """The figures are lower bounds: what was announced again may be copies."""
