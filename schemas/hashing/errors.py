"""What keeps hashes from being computed."""

from __future__ import annotations


class NotComputable(ValueError):
    """Nobody outside the engine can compute its hashes, or not from what was given; the text says why."""
