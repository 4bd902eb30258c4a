"""Records of `kvlens.checkpoints.fleet.v1`: what the fleet agent needs to continue after a crash.

A checkpoint is a base: a `FleetHead` under the key HEAD_KEY and its parts under `part_key(...)`. It is
written now and then only; whoever loads it applies the residency records after `next_offset` once more,
which gives the same rows. The parts of a base may be spread over several transactions, the head is in the
last one; parts of other epochs are leftovers and ignored.
"""

from __future__ import annotations

from typing import Literal

import msgspec

HEAD_KEY = b"@head"
"""Key of the `FleetHead`."""


def part_key(epoch: int, number: int) -> bytes:
    """Return the record key of part `number` of a base; the base before keeps its parts meanwhile."""
    return msgspec.msgpack.encode((epoch % 2, number))


class FleetPart(msgspec.Struct, omit_defaults=True, gc=False):
    """Some rows of one table of the index (`pipeline.fleet.index`)."""

    epoch: int
    """That of the head it belongs to."""
    table: Literal["blocks", "pairs", "losses"]
    """Which table; the rows of `losses` are in the order of the log."""
    columns: list[bytes]
    """The fields of the table's rows in their order, little-endian."""


class FleetSource(msgspec.Struct, array_like=True, gc=False):
    """What is known of a source apart from its blocks."""

    number: int
    """By which the tables name it."""
    replica: str
    """Replica id."""
    dp_rank: int
    """Data-parallel rank."""
    incarnation: int
    """Present life of the engine."""
    life: int
    """Counts incarnations."""
    trust: int
    """0 complete, 1 partial, 2 degraded."""
    unsure_until: float
    """Event time up to which something it lost may not be known."""
    seen: float
    """Latest event time."""
    first_loss_after_clear: int = 0
    """Number of the first loss after the source's last one by a clear or restart."""


class FleetSpace(msgspec.Struct, array_like=True, gc=False):
    """A hash domain and group, numbered by its place."""

    hash_domain: str
    """Hashes compare only inside one."""
    model: str
    """Model name."""
    group_idx: int
    """KV-cache group of a hybrid engine; 0 where there is only one."""


class FleetLineage(msgspec.Struct, array_like=True, gc=False):
    """What the hashes of a chain depend on besides its tokens, numbered by its place."""

    space: int
    """Number of the hash domain and group."""
    lora: str
    """Adapter; empty without one."""


class FleetLabel(msgspec.Struct, array_like=True, gc=False):
    """A life of a source, or several that were found to hash alike, numbered by its place."""

    parent: int
    """Label that it was joined to; its own number when it was not."""
    members: int
    """Lives that go on, of this one and all that were joined to it."""
    name: str
    """The life it was made for, as replica/rank@incarnation."""


class FleetStanding(msgspec.Struct, array_like=True, gc=False):
    """What is known of a source's hashes."""

    source: int
    """Number of the source."""
    label: int
    """Of its present life."""
    domain: str
    """Hash domain."""
    model: str
    """Model name."""
    incarnation: int
    """Life that the label was made for."""
    returns: int
    """How often it filled blocks of a chain whose first block it had used in an earlier second."""
    returns_before: int
    """The same when it last began, or was left, without another that hashes alike."""
    others_before: int
    """Returns of the other sources of the hash domain then."""
    alone: bool
    """Whether it counts as hashing differently."""


class FleetRefill(msgspec.Struct, array_like=True, gc=False):
    """Tokens of a prefix that were filled again in the open window."""

    root: int
    """First block of the chain."""
    tokens: int
    """Less what `refills_forgotten` says may be missing."""
    lineage: int
    """Number of the lineage."""
    depth: int
    """Blocks of the chain up to and including the deepest one filled again."""


class FleetCell(msgspec.Struct, array_like=True, gc=False):
    """Open window of a source and space."""

    source: int
    """Number of the source."""
    space: int
    """Number of the space."""
    window: int | None
    """Number of the open window; None before the first fill."""
    version: int
    """Offset of the last record in the figures."""
    trust: int
    """As in `FleetSource`."""
    blocks: list[int]
    """By cause, as in `pipeline.fleet.causes`."""
    tokens: list[int]
    """By cause."""
    regret: list[int]
    """As `regret_hist` of `fills_10s`, not scaled."""
    needed: list[int]
    """As `needed_hist` of `capacity_curve_10s`, not scaled."""


class FleetGauge(msgspec.Struct, array_like=True, gc=False):
    """Redundancy of a space on one medium."""

    space: int
    """Number of the space."""
    medium: str
    """Canonical medium, e.g. `gpu`, `cpu`."""
    owners: list[int]
    """Blocks with 1, 2, 3, 4-7, 8 and more owners."""
    unique: int
    """Tokens in distinct blocks."""
    physical: int
    """The same, once for each owner."""
    version: int
    """Offset of the last record in the figures."""
    written: int | None
    """Last window whose row shows the gauge as it is."""
    furthest: int | None
    """Last window for which a row was ever written."""


class FleetHead(msgspec.Struct, omit_defaults=True, gc=False):
    """Everything but the tables of the index."""

    next_offset: int
    """Offset of the first residency record that is not yet in the base."""
    epoch: int
    """Number of the base."""
    parts: int
    """How many parts it has."""
    one_in: int
    """Sampled: one block in so many."""
    window: int | None
    """Number of the window of `time`; None before the first change."""
    time: float
    """Latest event time, seconds since the epoch."""
    first_loss: int
    """Number of the oldest loss remembered."""
    followed: int
    """Changes applied so far."""
    sources: list[FleetSource]
    """Known sources."""
    spaces: list[FleetSpace]
    """Known hash domains and groups."""
    media: dict[str, int]
    """Medium, with `/store-only` where removals are not announced, to its bit."""
    cells: list[FleetCell]
    """Open windows."""
    gauges: list[FleetGauge]
    """In the order of their numbers."""
    lineages: list[FleetLineage] = []
    """Known lineages."""
    refills: list[FleetRefill] = []
    """Of the open window."""
    refills_forgotten: int = 0
    """Tokens that may be missing from each of `refills`."""
    labels: list[FleetLabel] = []
    """Lives of sources by how they hash."""
    standings: list[FleetStanding] = []
    """Of known sources."""
    firsts: list[bytes] = []
    """First blocks remembered: their places (i64), then the columns of the table, little-endian."""
