"""Dates and times in ISO 8601, with the fractions and zones that newer Pythons read. Pure."""

from __future__ import annotations

import re
from datetime import datetime, timezone

_DAY = len("2026-11-23")
_FRACTION = re.compile(r"[.,](\d+)")
_ZONE = re.compile(r"\s*([+-]\d\d):?(\d\d)?$")


def read_date(text: str) -> datetime:
    """Return a moment; a blank may be in place of the T, and without a zone it is UTC. Raises ValueError."""
    # Python 3.10 reads fractions of three or six digits only, and zones only as +HH:MM.
    time = _FRACTION.sub(lambda found: f".{found[1][:6]:0<6}", text[_DAY:], count=1).replace("Z", "+00:00")
    time = _ZONE.sub(lambda found: f"{found[1]}:{found[2] or '00'}", time)
    found = datetime.fromisoformat(text[:_DAY] + time)
    return found.replace(tzinfo=found.tzinfo or timezone.utc)
