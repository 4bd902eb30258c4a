"""A record that cannot be applied: why, and whose it is."""

from __future__ import annotations

from typing import NamedTuple

from schemas.reasons import SetAsideReason


class SourceName(NamedTuple):
    """The source that a record names, as far as it can be read."""

    replica: str
    dp_rank: int | None
    """None: the record's key names the replica only."""


class RecordRefused(Exception):
    """A record that must not be applied."""

    def __init__(self, reason: SetAsideReason, detail: str, sources: tuple[SourceName, ...]) -> None:
        super().__init__(reason, detail, sources)
        self.reason = reason
        self.detail = detail
        self.sources = sources

    def names(self, replica: str, dp_rank: int) -> bool:
        """Return whether the record is about this source, as far as it can be read."""
        return (replica, dp_rank) in self.sources or (replica, None) in self.sources

    def __str__(self) -> str:
        return f"{self.reason}: {self.detail}"
