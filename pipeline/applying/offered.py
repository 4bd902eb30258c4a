"""Records of the log as they came, whichever client fetched them."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np


class Offered(NamedTuple):
    """A record of the log as it came."""

    offset: int
    value: bytes | None
    headers: Sequence[tuple[str, bytes]] = ()
    key: bytes | None = None
    written_at: float = 0.0
    """The broker's time of it, in seconds since the epoch; 0 or less where it has none."""


def offered(records: Sequence[Any]) -> list[Offered]:
    """Convert records of aiokafka, either as it parses them or as it hands them to users."""
    if not records:
        return []
    offsets, values, headers, keys, times = zip(*map(_fields, records), strict=True)
    return [*map(Offered, offsets, values, headers, keys, (np.array(times) / 1000).tolist())]


_fields = attrgetter("offset", "value", "headers", "key", "timestamp")
