"""All engines together. Events are decoded before their engine is known, so there is one table for all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from connectors.engines.atom import ATOM
from connectors.engines.description import Engine, EventType, Medium
from connectors.engines.flexkv import FLEXKV
from connectors.engines.llmd import LLMD
from connectors.engines.lmcache import LMCACHE
from connectors.engines.media import Media
from connectors.engines.mooncake import MOONCAKE
from connectors.engines.sglang import SGLANG
from connectors.engines.sighting import Kind, Meaning
from connectors.engines.tokenspeed import TOKENSPEED
from connectors.engines.trtllm import TRTLLM
from connectors.engines.vllm import VLLM
from connectors.process.errors import DataError

_Where = TypeVar("_Where", str, int)

ENGINES = (VLLM, SGLANG, TRTLLM, TOKENSPEED, FLEXKV, MOONCAKE, LLMD, LMCACHE, ATOM)
"""If an event fits several engines, the last one here counts."""

TYPE_KEY = "type"
"""Key that holds the type of a map event: msgspec's default, which the engines use."""
OTHER_TYPE_KEY = "event_type"
"""Key that holds it where there is no such key."""
ESSENTIAL: Mapping[Kind, frozenset[Meaning]] = {
    "stored": frozenset({"hashes", "block_size"}),
    "removed": frozenset({"hashes"}),
    "cleared": frozenset(),
    "moved": frozenset({"hashes", "from_medium", "medium"}),
    "skipped": frozenset(),
}
"""Fields that a record needs."""


class EnginesDisagree(DataError):
    """Two descriptions contradict each other, or one of them says too little."""

    engine: str
    subject: str
    """An event type or a spelling of a medium."""
    problem: str
    line = "{engine}: {subject}: {problem}"


@dataclass(frozen=True, slots=True, eq=False)
class EventForm:
    """One type of event as all engines that publish it have it."""

    name: str
    kind: Kind
    keys: Mapping[Meaning, str]
    """In maps, in the order in which engines write them."""
    positions: Mapping[Meaning, int]
    """In arrays, whose element 0 is the type."""
    required: frozenset[Meaning]
    foreign_maps: frozenset[int]
    """Positions in arrays whose element says nothing if it is a map."""
    rare: bool
    """Whether every engine describes it as rare."""
    marks: frozenset[str]
    """Keys of maps that engines are recognised by."""
    engines: tuple[Engine, ...]

    @property
    def everyday(self) -> bool:
        """Whether batches with such events are decoded as a whole; others are decoded event by event."""
        return not (self.rare or self.kind == "moved" or (self.kind == "cleared" and self.required))

    @property
    def least(self) -> int:
        """Return how many elements an array has at least."""
        required = [at for meaning, at in self.positions.items() if meaning in self.required]
        return 1 + max(required, default=0)


@dataclass(frozen=True, slots=True, eq=False)
class Catalogue:
    """What decoders, scanner, scraper and the recognition of engines are built from."""

    engines: tuple[Engine, ...]
    forms: Mapping[str, EventForm]
    """By name of the type."""
    media: Media


def combined(engines: tuple[Engine, ...]) -> Catalogue:
    """Return the tables of all engines. Raises EnginesDisagree."""
    forms: dict[str, EventForm] = {}
    spellings: dict[str, Medium] = {}
    for engine in engines:
        for event in engine.events:
            before = forms.get(event.name)
            forms[event.name] = _joined(before, event, engine)
        for spelling, medium in engine.media.items():
            if spellings.setdefault(spelling, medium) != medium:
                raise EnginesDisagree(engine.name, spelling, f"means {spellings[spelling]} to others")
    return Catalogue(engines, forms, Media(spellings))


def _joined(before: EventForm | None, event: EventType, engine: Engine) -> EventForm:
    """Return the form of a type with what one more engine says of it."""
    required = frozenset(field.meaning for field in event.fields if field.required)
    missing = ESSENTIAL[event.kind] - required
    if missing:
        raise EnginesDisagree(engine.name, event.name, f"does not require {', '.join(sorted(missing))}")
    keys: dict[Meaning, str] = {}
    positions: dict[Meaning, int] = {}
    if before is not None:
        if before.kind != event.kind:
            raise EnginesDisagree(engine.name, event.name, f"is {before.kind} to others")
        keys, positions, required = {**before.keys}, {**before.positions}, required & before.required
    for field in event.fields:
        if field.key == TYPE_KEY or field.position == 0:
            raise EnginesDisagree(engine.name, event.name, f"has {field.meaning} where its type is")
        _add(keys, field.meaning, field.key, engine, event)
        if field.position is not None:
            _add(positions, field.meaning, field.position, engine, event)
    return EventForm(
        event.name,
        event.kind,
        keys,
        positions,
        required,
        event.foreign_maps | (before.foreign_maps if before else frozenset()),
        event.rare and (before is None or before.rare),
        event.marks | (before.marks if before else frozenset()),
        (*(before.engines if before else ()), engine),
    )


def _add(
    known: dict[Meaning, _Where], meaning: Meaning, where: _Where, engine: Engine, event: EventType
) -> None:
    """Remember where a field is. Raises EnginesDisagree if it is elsewhere, or another one is there."""
    holder = next((other for other, taken in known.items() if taken == where), meaning)
    if known.setdefault(meaning, where) != where or holder != meaning:
        raise EnginesDisagree(
            engine.name, event.name, f"has {meaning} at {where!r}, others {holder} at {known[holder]!r}"
        )


CATALOGUE = combined(ENGINES)
