"""Records of `kvlens.checkpoints.fleet.v1`: what the fleet agent needs to continue after a crash.

A checkpoint is a base: a `FleetHead` under the key HEAD_KEY and its parts under `part_key(...)`. It is
written now and then only; whoever loads it applies the residency records after `next_offset` once more,
which gives the same rows. The parts of a base may be spread over several transactions, the head is in the
last one; parts of other epochs are leftovers and ignored.

The agent works on the very `FleetHead` that a checkpoint holds: to save it is to encode it. What its compiled
loop moves is kept in arrays, and travels as columns.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from schemas.checkpoints import Offset
from schemas.events import DpRank, GroupIdx, Incarnation, LongName, Name, Text
from schemas.pool_checkpoints import Moment, Natural
from schemas.residency import LATEST_CHANGE, PartitionNumber, SourceChanges

SourceNumber = Annotated[int, Meta(ge=0, le=2**16 - 1)]
SpaceNumber = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Bit = Annotated[int, Meta(ge=0, le=13)]
Written = Annotated[int, Meta(ge=-1, le=LATEST_CHANGE // 10)]
"""A window; -1 stands before the first one."""

HEAD_KEY = b"@head"
"""Key of the `FleetHead`."""
FORMAT = 4
"""Of the checkpoints that this kvlens writes, and the only one that it reads."""


TableName = Literal[
    "blocks",
    "pairs",
    "losses",
    "clock",
    "refills",
    "cells",
    "gauges",
    "labels",
    "origins",
    "firsts",
    "waiting",
    "waiting_pieces",
    "fills",
    "answers",
    "undecided",
]


def part_key(epoch: int, number: int) -> bytes:
    """Return the record key of part `number` of a base; the base before keeps its parts meanwhile."""
    return msgspec.msgpack.encode((epoch % 2, number))


class FleetPart(msgspec.Struct, omit_defaults=True, gc=False):
    """Some rows of one table of the index (`pipeline.fleet.kernel`)."""

    epoch: int
    """Epoch of the head it belongs to."""
    table: TableName
    """Which table; the rows of `losses` are in the order of the log, those of `cells`, `gauges` and `labels`
    in that of the head, those of `origins` by number of the source, and those of `waiting` in the order in
    which the changes came."""
    columns: list[bytes]
    """The fields of the table's rows in their order, little-endian; of `undecided` the bytes of a
    `FleetUndecided`."""


SourceName = tuple[Name, DpRank]


class FleetUndecided(msgspec.Struct, array_like=True, gc=False):
    """What sources said of which it is not known yet whether they receive KV."""

    given_up: list[SourceName] = []
    """Those that did not tell in time, and have not told since."""
    changes: list[SourceChanges] = []
    """Those of each source in the order in which they came."""


class FleetSource(msgspec.Struct, array_like=True, gc=False):
    """Facts about a source, apart from its blocks."""

    number: SourceNumber
    """Its number in the tables."""
    replica: Name
    """Replica id."""
    dp_rank: DpRank
    """Data-parallel rank."""
    incarnation: Incarnation = 0
    """The present engine session."""
    life: Natural = 0
    """Counts incarnations."""
    trust: Annotated[int, Meta(ge=0, le=2)] = 0
    """0 complete, 1 partial, 2 degraded, as of its last record."""
    unsure_until: Annotated[float, Meta(ge=0)] = 0.0
    """Event time up to which something it lost may not be known."""
    seen: Moment = 0.0
    """Latest event time."""
    reached: Moment = 0.0
    """Event time as which its last change counts: later ones count no earlier."""


class FleetSpace(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A hash domain, model and group, numbered by its index."""

    hash_domain: LongName
    """Hashes compare only inside one."""
    model: Name
    """Model name."""
    group_idx: GroupIdx
    """KV-cache group of a hybrid engine; 0 where there is only one."""


class FleetLineage(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """What the hashes of a chain depend on besides its tokens, numbered by its index."""

    space: SpaceNumber
    """Number of the hash domain and group."""
    lora: Text
    """Adapter; empty without one."""


class FleetStanding(msgspec.Struct, array_like=True, gc=False):
    """Evidence about the hashes of a source."""

    domain: LongName
    """Hash domain."""
    model: Name
    """Model name."""
    incarnation: Incarnation = 0
    """Engine session that its label was made for."""
    returns_before: Natural = 0
    """Returns of the source when it last began, or was left, without another that hashes alike. A source
    returns when it fills blocks of a chain whose first block it had used in an earlier second."""
    others_before: Natural = 0
    """Returns of the other sources of its hash domain then."""
    alone: bool = False
    """Shares nothing with anybody, though its traffic and that of others keep coming back to first blocks."""


class FleetCell(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Whose open window a row of the table `cells` is."""

    source: SourceNumber
    """Number of the source."""
    space: SpaceNumber
    """Number of the space."""


class FleetGauge(msgspec.Struct, array_like=True, gc=False):
    """Whose redundancy a row of the table `gauges` is."""

    space: SpaceNumber
    """Number of the space."""
    medium: Text
    """Canonical medium, e.g. `gpu`, `cpu`."""
    written: Written | None = None
    """Last window whose row shows the gauge as it is."""
    furthest: Written | None = None
    """Last window for which a row was ever written; those behind `written` show an older state."""


class FleetProgress(msgspec.Struct, array_like=True, gc=False):
    """How far a partition of the events topic has come."""

    read_to: Moment = 0.0
    """Time in the log up to which it is read; 0 if it did not say yet."""
    offsets: list[tuple[Moment, Offset]] = []
    """Times in the log up to which it was read when its engines had filled or lost blocks, and the offset of
    their clocks: those behind what all partitions are read to, and one before."""


class FleetHead(msgspec.Struct, omit_defaults=True, gc=False):
    """Everything but the tables of the index."""

    one_in: Annotated[int, Meta(ge=1, le=2**31)]
    """Sampled: one block in so many."""
    next_offset: Natural = 0
    """Offset of the first residency record that is not yet in the base."""
    epoch: Natural = 0
    """Number of the base."""
    parts: Annotated[int, Meta(ge=0, le=2**20)] = 0
    """How many parts it has."""
    followed: Natural = 0
    """Changes applied so far; with sampling those of the sample."""
    sources: list[FleetSource | None] = []
    """By number; None: the number is free."""
    spaces: list[FleetSpace] = []
    """Known hash domains, their models and groups."""
    lineages: list[FleetLineage] = []
    """Known lineages."""
    media: dict[str, Bit] = {}
    """Medium, with `/store-only` where removals are not announced, to its bit."""
    cells: list[FleetCell | None] = []
    """By number; None: the number is free."""
    gauges: list[FleetGauge] = []
    """By number."""
    labels: list[str] = []
    """Engine sessions that labels were made for, as replica/rank@incarnation, by number of the label."""
    standings: dict[SourceNumber, FleetStanding] = {}
    """By number of the source."""
    decided_to: dict[PartitionNumber, Moment] = {}
    """Event time up to which other shards decided on runs, as far as they said."""
    looked_in: Written | None = None
    """Window of the clock when it was last looked for sources to forget."""
    progress: dict[PartitionNumber, FleetProgress] = {}
    """Of each partition of the events topic that was heard."""
    counted_to: Moment = 0.0
    """Latest event time as which a change counted."""
    format: int = 1
    """Format of the checkpoint, which is looked at first."""
