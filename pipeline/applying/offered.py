"""Records of the log as they came, whichever client fetched them."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from schemas.events import LATEST


class Offered(NamedTuple):
    """A record of the log as it came."""

    offset: int
    value: bytes | None
    headers: Sequence[tuple[str, bytes]] = ()
    key: bytes | None = None
    written_at: float = 0.0
    """The log's time of it, in seconds since the epoch, LATEST at most; 0 or less where it has none."""


def offered(records: Sequence[Any]) -> list[Offered]:
    """Convert records of aiokafka, either as it parses them or as it hands them to users."""
    if not records:
        return []
    offsets, values, headers, keys, times = zip(*map(_fields, records), strict=True)
    # Where the log takes the times of producers, any number may come.
    written = np.minimum(np.array(times) / 1000, LATEST).tolist()
    return [*map(Offered, offsets, values, headers, keys, written)]


_fields = attrgetter("offset", "value", "headers", "key", "timestamp")
