"""Well-formed events of all engines as structs, made from the engines' descriptions.

Made and not written down, so that the fast decoder knows every engine that the reference decoder knows. Each
struct has one attribute for each meaning a field may have to us, whatever the engine calls it.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache
from typing import Annotated, Any, Literal, Protocol, Union

from msgspec import Meta, Raw, Struct, defstruct

from connectors.engines.catalogue import TYPE_KEY, Catalogue, EventForm
from connectors.engines.sighting import CONTENT, SALTED, Kind, Meaning
from connectors.normalise.wire import ABSENT, MAX_BATCH_HASHES, BlockSize, GroupIdx, Hash, Text


class WireEvent(Protocol):
    """An event as decoded; what its type does not have is None."""

    kind: Kind
    hashes: list[Hash]
    parent: Hash | None
    block_size: int
    lora_id: int | str | None
    medium: str | None
    lora_name: str | None
    group_idx: int | None
    spec_kind: str | None
    sliding_window: int | None
    session: str | None
    tokens: Raw | None
    keys: Raw | None
    media_keys: Raw | None
    salt: Raw | None
    in_map: bool


class WireBatch(Protocol):
    """A batch as decoded."""

    ts: float
    events: list[WireEvent]
    rank: Raw
    """ABSENT where the batch says none."""


class ForeignMap(Struct, gc=False):
    """A map that says nothing to us; nothing in it is decoded."""


_NOTHING = Annotated[int, Meta(gt=0, lt=0)]
"""What nothing is: an event where no engine uses the encoding, a field of events that go one by one."""
_TYPES: dict[Meaning, Any] = {
    "hashes": Annotated[list[Hash], Meta(max_length=MAX_BATCH_HASHES)],
    "parent": Hash | None,
    "block_size": BlockSize,
    "lora_id": int | Text | None,
    "medium": Text | None,
    "from_medium": Text | None,
    "object_key": _NOTHING | None,
    "tenant": _NOTHING | None,
    "lora_name": Text | None,
    "group_idx": GroupIdx | None,
    "spec_kind": Text | None,
    "sliding_window": int | None,
    "session": Text | None,
    "tokens": Raw,
    "keys": Raw,
    "media_keys": Raw,
    "salt": Raw,
    "owner": _NOTHING | None,
    "locality": Literal["LOCAL"] | None,
}
_MAY_BE_FOREIGN: frozenset[Meaning] = frozenset({"lora_name"})
"""Fields for which the fast decoder takes a map; it gives up a payload that has one elsewhere."""


@lru_cache(maxsize=8)
def batch_types(
    catalogue: Catalogue, *, sessions: bool, content: bool, salts: bool
) -> tuple[type[WireBatch], type[WireBatch]]:
    """Return the structs of batches whose events are all arrays, and all maps.

    Without `sessions`, `content` and `salts` the fields for these are not looked at, but for how many token
    ids an array has.
    """
    left_out: frozenset[Meaning] = frozenset() if sessions else frozenset({"session"})
    if not content:
        left_out |= CONTENT - SALTED if salts else CONTENT
    forms = [form for form in catalogue.forms.values() if form.everyday]
    return (
        _batch(
            [_array(form, left_out - {"tokens"}) for form in forms if form.required <= form.positions.keys()]
        ),
        _batch([_map(form, left_out) for form in forms]),
    )


def _batch(events: list[type[Struct]]) -> Any:
    event: Any = Union[tuple(events) or (_NOTHING,)]  # noqa: UP007 # of types that are not known before
    fields: list[Any] = [("ts", float), ("events", list[event]), ("rank", Raw, ABSENT)]
    return defstruct("WireBatch", fields, array_like=True, gc=False)


def _array(form: EventForm, left_out: frozenset[Meaning]) -> type[Struct]:
    by_position = {at: meaning for meaning, at in form.positions.items() if meaning not in left_out}
    fields: list[Any] = []
    for at in range(1, max(by_position, default=0) + 1):
        meaning = by_position.get(at)
        if meaning is None:
            name, kind, default = f"skipped_{at}", Raw, ABSENT
        else:
            name, kind, default = meaning, _TYPES[meaning], None
            if at in form.foreign_maps and meaning in _MAY_BE_FOREIGN - form.required:
                kind |= ForeignMap
        fields.append((name, kind) if at < form.least else (name, kind, default))
    return defstruct(
        f"{form.name}Array",
        fields,
        namespace=_constants(form, by_position.values(), in_map=False),
        tag=form.name,
        array_like=True,
        gc=False,
    )


def _map(form: EventForm, left_out: frozenset[Meaning]) -> type[Struct]:
    known = [meaning for meaning in form.keys if meaning not in left_out]
    fields: list[Any] = [
        (meaning, _TYPES[meaning]) if meaning in form.required else (meaning, _TYPES[meaning], None)
        for meaning in known
    ]
    return defstruct(
        f"{form.name}Map",
        fields,
        namespace=_constants(form, known, in_map=True),
        tag=form.name,
        tag_field=TYPE_KEY,
        rename={meaning: form.keys[meaning] for meaning in known},
        kw_only=True,
        gc=False,
    )


def _constants(form: EventForm, known: Collection[Meaning], *, in_map: bool) -> dict[str, Any]:
    """Return what all events of a type have in common: its kind, and None for what it does not have."""
    return {
        "kind": form.kind,
        "in_map": in_map,
        **{meaning: None for meaning in _TYPES if meaning not in known},
    }
