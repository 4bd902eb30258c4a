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
    """Whether an event without it is no event. An array reaches at least to its last required field; where a
    required field has no position, the event is never an array."""


@dataclass(frozen=True, slots=True)
class EventType:
    """One type of event. Engines that share a name share its fields, as nothing else tells them apart."""

    name: str
    kind: Kind
    """What it means to us."""
    fields: tuple[Field, ...] = ()
    """In the order in which the engine writes maps, which is what makes decoding them fast."""
    foreign_maps: frozenset[int] = frozenset()
    """Positions where this engine may have a map that says nothing to us, whatever others have there."""


@dataclass(frozen=True, slots=True)
class Medium:
    """What a spelling of a medium means."""

    name: str
    """Canonical, see `schemas.events.Stored.medium`."""
    store_only: bool = False
    """Whether whoever spells it like this announces what comes there and never what leaves."""


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


@dataclass(frozen=True, slots=True)
class Engine:
    """Everything that is true of one engine."""

    name: str
    """As it stands in the records."""
    events: tuple[EventType, ...]
    media: Mapping[str, Medium]
    """By spelling. In another case it means the same, and is store-only if every known spelling is."""
    recognised: Callable[[Sighting], bool]
    """Tells whether one event can only be of this engine. It is asked about events of its types."""
    metrics: Metrics | None = None
    may_reannounce: frozenset[Encoding] = frozenset()
    """Encodings of those versions that may announce again what is resident, without a second copy."""
    era_prefix: str = ""
    """Stands in `wire_era` before the encoding."""
