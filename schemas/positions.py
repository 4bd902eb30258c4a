"""Records of `kvlens.positions.v1`: up to where each source is in the events topic.

A connector that starts continues there. Keyed by `position_key`; of a key the record with the greatest
incarnation and sequence number counts, of equal ones the newest.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from schemas.events import DpRank, Fingerprint, Incarnation, Name, Seq, Total
from schemas.residency import PartitionNumber


def position_key(replica: str, dp_rank: int) -> bytes:
    """Return the record key of a source: `replica/dp_rank`."""
    return f"{replica}/{dp_rank}".encode()


class PositionRecord(msgspec.Struct, omit_defaults=True, gc=False):
    """The last batch of a source in the events topic, as far as `offset`.

    Records of the source behind `offset` may have moved it on; the one at `offset` and all before it have
    not.
    """

    replica: Name
    """Replica id."""
    dp_rank: DpRank
    """Data-parallel rank."""
    partition: PartitionNumber
    """Partition of the events topic that the source is in."""
    offset: Annotated[int, Meta(ge=-1, le=2**63 - 1)]
    """Offset there up to which (inclusive) every record of the source is accounted for; -1 before the
    first one."""
    incarnation: Incarnation = 0
    """Last incarnation published; 0 when there is none."""
    seq: Seq | None = None
    """Last sequence number published of that incarnation; None when there is none."""
    fingerprint: Fingerprint = 0
    """Fingerprint of the payload of `seq`, as `last_fingerprint` of the events record."""
    closed: bool = False
    """The session is closed: the next one is greater and starts over."""
    life: str = ""
    """Name of the engine session from outside, such as the UID of its pod; empty where there is none."""
    connector: str = ""
    """Name of the connector process that wrote this, random for each process."""
    emitters: dict[Name, tuple[Total, Seq]] = {}
    """Where several publishers report of the source: by publisher, its session and the last of its numbers
    published."""
    place: tuple[str, str, str] | None = None
    """Of which server, storage and model, if servers of LMCache report it; without a server several share
    the storage, without a storage it is the server's memory."""
    topic_id: str = ""
    """Id of the events topic that `offset` is in, as Kafka's own tools print it: a topic that is made again
    has another one. Empty where brokers have none."""

    @property
    def source(self) -> tuple[str, int]:
        """The replica and its rank."""
        return (self.replica, self.dp_rank)
