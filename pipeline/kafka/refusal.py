"""A record that cannot be applied: why, and which sources it is about."""

from __future__ import annotations

from typing import NamedTuple

from connectors.process.errors import DataError
from schemas.reasons import SetAsideReason


class SourceName(NamedTuple):
    """The source that a record names, as far as it can be read."""

    replica: str
    dp_rank: int | None
    """None: the record's key names the replica only."""


class RecordRefused(DataError):
    """A record that must not be applied."""

    reason: SetAsideReason
    detail: str
    sources: tuple[SourceName, ...]
    line = "{reason}: {detail}"

    def names(self, replica: str, dp_rank: int) -> bool:
        """Return whether the record is about this source, as far as it can be read."""
        return (replica, dp_rank) in self.sources or (replica, None) in self.sources
