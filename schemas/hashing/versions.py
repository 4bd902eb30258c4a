"""Versions of engines, as far as they decide how blocks are hashed."""

from __future__ import annotations

import re

from schemas.hashing.errors import NotComputable

Version = tuple[int, int, int]

_NUMBERS = re.compile(r"v?(\d+)\.(\d+)(?:\.(\d+))?")


def release(text: str) -> Version:
    """Return (0, 31, 0) for `0.31.0`, `v0.31.0rc1` and `0.31.0+cpu`. Raises NotComputable."""
    numbers = _NUMBERS.match(text)
    if numbers is None:
        raise NotComputable(f"not a version: {text!r}")
    major, minor, patch = numbers.groups(default="0")
    return int(major), int(minor), int(patch)
