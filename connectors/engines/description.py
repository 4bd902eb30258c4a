"""The form of an engine's description: its events, media, metrics and traits.

Only what we read is described. Every other field, whatever it holds, is skipped undecoded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from connectors.engines.sighting import Kind, Meaning, Sighting

Encoding = Literal["array", "map"]
"""How an event is encoded: `["BlockStored", field, ...]` or `{"type": "BlockStored", ...}`."""


@dataclass(frozen=True, slots=True)
class Field:
    """A field of an event."""

    meaning: Meaning
    key: str
    """Its name where the event is a map."""
    position: int | None = None
    """Where it is in an array, whose element 0 is the event's type; None: it occurs in maps only."""
    required: bool = False
    """Whether an event without it is invalid. An array reaches at least to its last required field; where a
    required field has no position, the event is never an array."""


@dataclass(frozen=True, slots=True)
class EventType:
    """One type of event. Engines that share a name share its fields, as nothing else distinguishes them."""

    name: str
    kind: Kind
    """What it means to us."""
    fields: tuple[Field, ...] = ()
    """In the order in which the engine writes maps, which is what makes decoding them fast."""
    foreign_maps: frozenset[int] = frozenset()
    """Positions where this engine may have a map that says nothing to us, whatever others have there."""
    rare: bool = False
    """Whether batches with it may be decoded the slow way."""
    marks: frozenset[str] = frozenset()
    """Keys of maps that show the engine by being there. Their values are not decoded."""


@dataclass(frozen=True, slots=True)
class Medium:
    """What a spelling of a medium means."""

    name: str
    """Canonical, see `schemas.events.Stored.medium`."""
    store_only: bool = False
    """Whether publishers that spell it like this announce what they store there and never what they drop."""


@dataclass(frozen=True, slots=True)
class Sum:
    """Samples of a metric that add up to one figure, which is not known if a page has none of them."""

    metric: str
    """Without `_total`."""
    label: str = ""
    values: frozenset[str] | None = None
    """Values of the label of samples that count; a missing label is empty. None: all samples count."""
    but: frozenset[str] = frozenset()
    """Values of the label of samples that do not count."""

    def counts(self, labels: Mapping[str, str]) -> bool:
        """Return whether a sample with these labels counts."""
        value = labels.get(self.label, "")
        return value not in self.but and (self.values is None or value in self.values)


@dataclass(frozen=True, slots=True)
class Metrics:
    """Where the engine's Prometheus page has what `schemas.events.EngineCounters` holds."""

    rank_label: str
    """Label with the data-parallel rank; a sample without it is of rank 0."""
    samples: Mapping[str, tuple[str, ...]]
    """Field of EngineCounters to names of its metric without `_total`, newest first: engines export both
    for a while."""
    labels: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Field of EngineCounters to (metric, label whose value it is)."""
    only: Mapping[str, Mapping[str, frozenset[str]]] = field(default_factory=dict)
    """Metric to label to the values of samples that count; a missing label is empty."""
    sums: Mapping[str, Sum] = field(default_factory=dict)
    """Field of EngineCounters to what is added up to it."""
    capacity_tokens: str = ""
    """Metric with the GPU's capacity where that is given in tokens; the block size makes blocks of it."""
    cpu_capacity_blocks: tuple[str, str] = ("", "")
    """(Metric, label whose value it is) with the CPU tier's capacity, where that is given in `block_size`."""
    unused_cpu_blocks: int = 0
    """How many of them never hold anything."""
    unused_blocks: int | None = None
    """`EngineCounters.unused_blocks`, where the engine has a capacity."""


@dataclass(frozen=True, slots=True)
class Engine:
    """Everything that is true of one engine."""

    name: str
    """As in the records."""
    events: tuple[EventType, ...]
    media: Mapping[str, Medium]
    """By spelling. In another case it means the same, and is store-only if every known spelling is."""
    store_only: frozenset[str] = field(default=frozenset(), kw_only=True)
    """Canonical media on which it announces what it stores and never what it drops, whatever other engines do
    there. Batches with them are decoded the slow way."""
    recognised: Callable[[Sighting], bool]
    """Returns whether an event can only be of this engine. It is asked about events of its types."""
    suspected: Callable[[Sighting], bool] = lambda seen: False
    """Returns whether it is probably of this engine. It is asked as long as no engine is known."""
    metrics: Metrics | None = None
    may_reannounce: frozenset[Encoding] = frozenset()
    """Encodings of the versions that may announce again what is resident, without a second copy."""
    one_copy: bool = False
    """Whether it knows at most one copy of each block: one removal ends it, even if announced repeatedly."""
    clears_all: bool = False
    """Whether a clear that names no medium clears every one; otherwise the reader's setting says which."""
    unnumbered: bool = False
    """Whether a message without a sequence number can only be of this engine."""
    era_prefix: str = ""
    """What comes before the encoding in `wire_era`."""
