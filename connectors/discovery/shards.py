"""Which of several connectors reads a replica."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b

from connectors.sources import Source
from schemas.settings import shard_numbers


@dataclass(frozen=True, slots=True)
class Shard:
    """One of `shards` equal shares of any fleet; every replica is in exactly one, with all its ranks."""

    number: int
    shards: int

    @classmethod
    def of(cls, setting: str) -> Shard:
        """Read `connector.shard`; raises ValueError."""
        return cls(*shard_numbers(setting))

    def owns(self, replica: str) -> bool:
        """Return whether a replica is in this share, by its id alone: alike in every process and version."""
        digest = blake2b(replica.encode(), digest_size=8).digest()
        return int.from_bytes(digest, "big") % self.shards == self.number

    def share(self, sources: Iterable[Source]) -> list[Source]:
        return [source for source in sources if self.owns(source.replica)]
