"""Decode a batch of well-formed events of one encoding at once: the hot path.

Gives up (None) on anything unusual, which `connectors.normalise.reference_decoder` then decodes. Where it
does not give up, both return the same.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import lru_cache
from math import isfinite

from msgspec import DecodeError, Raw
from msgspec.msgpack import Decoder

from connectors.engines.catalogue import CATALOGUE, Catalogue
from connectors.engines.media import Location, Media
from connectors.normalise.columns import NO_RANK
from connectors.normalise.envelope import MILLISECONDS, rank_of
from connectors.normalise.errors import EventError
from connectors.normalise.forwarding import NOTHING_FORWARDED, Forwarding
from connectors.normalise.hashes import HashPacker
from connectors.normalise.links import Told
from connectors.normalise.pages import tokens_in_last
from connectors.normalise.salts import salt_name
from connectors.normalise.wire import ABSENT, MAX_BATCH_HASHES, Hash
from connectors.normalise.wire_structs import WireBatch, WireEvent, batch_types
from schemas.events import Batch, Cleared, Event, Removed, Stored

Locate = Callable[[str | None], Location]
_TIMELESS = b"\x92\xcb" + bytes(8) + b"\xdd"
"""What a batch begins with, as far as the number of its events."""


class FastDecoder:
    """Decodes the payloads of one source as long as they are well-formed; tries the last encoding first."""

    def __init__(
        self,
        forwarding: Forwarding = NOTHING_FORWARDED,
        catalogue: Catalogue = CATALOGUE,
    ) -> None:
        arrays, maps = batch_types(
            catalogue,
            sessions=forwarding.sessions is not None,
            content=forwarding.linker is not None,
            salts=forwarding.salts is not None,
        )
        self._forwarding = forwarding
        self._decode: Callable[[bytes], WireBatch] = Decoder(arrays).decode
        self._decode_other: Callable[[bytes], WireBatch] = Decoder(maps).decode
        self._packer = HashPacker()
        self._locate = _located_alike(catalogue.media)
        self._raw_rank = ABSENT
        self.rank = NO_RANK
        """Data-parallel rank that the last batch said."""
        self.skipped = 0
        """Events, so far, that change nothing of what is resident."""

    def decode_batch(self, payload: bytes, seq: int, received_at: float, replayed: bool) -> Batch | None:
        """Return the batch, or None when anything in it is not well-formed or both encodings are mixed."""
        try:
            try:
                wire = self._decode(payload)
            except DecodeError:
                wire = self._decode_other(payload)
                self._decode, self._decode_other = self._decode_other, self._decode
            if not wire.ts < MILLISECONDS or not isfinite(wire.ts):
                return None
            if len(payload) > MAX_BATCH_HASHES and _count_hashes(wire.events) > MAX_BATCH_HASHES:
                return None
            events, skipped = _normalised(wire.events, self._packer, self._locate, self._forwarding)
        except (DecodeError, UnicodeDecodeError, RecursionError, EventError):
            return None
        self.skipped += skipped
        if wire.rank != self._raw_rank:
            self._raw_rank, self.rank = wire.rank, rank_of(wire.rank)
        return Batch(seq, wire.ts, received_at, events, len(wire.events), replayed)

    def decode_events(self, raw_events: Sequence[Raw]) -> Sequence[Event] | None:
        """Return what undecoded events are, or None when one of them is not well-formed."""
        payload = _TIMELESS + len(raw_events).to_bytes(4, "big") + b"".join(raw_events)
        batch = self.decode_batch(payload, 0, 0.0, False)
        return None if batch is None else batch.events


def _located_alike(media: Media) -> Locate:
    """Return what locates media of which all engines say the same, and gives up the others."""

    def locate(raw: str | None) -> Location:
        location = media.locate(raw)
        if location[0] in media.by_engine:
            raise EventError("bad_medium")  # no fault, but somebody has to look which engine it is
        return location

    return lru_cache(maxsize=256)(locate)


def _count_hashes(wire_events: Sequence[WireEvent]) -> int:
    return sum(len(event.hashes) for event in wire_events if event.kind in ("stored", "removed"))


def _normalised(
    wire_events: Sequence[WireEvent],
    packer: HashPacker,
    locate: Locate,
    forwarding: Forwarding,
) -> tuple[list[Event], int]:
    """Return the events in order, adjacent removals of one place merged, and how many were skipped."""
    sessions, linker, salts = forwarding
    events: list[Event] = []
    skipped = 0
    run: WireEvent | None = None  # takes the hashes of the removals that follow it
    hashes: list[Hash] = []
    for event in wire_events:
        kind = event.kind
        if kind == "removed":
            if run is not None:
                same = event.group_idx == run.group_idx and event.medium == run.medium
                if same or _at_one_location(event, run, locate):
                    hashes += event.hashes
                    continue
                events.append(_removed(run, packer, locate))
            run = event
            hashes = event.hashes
            continue
        if kind == "skipped":
            skipped += 1
            continue
        if run is not None:
            events.append(_removed(run, packer, locate))
            run = None
        if kind == "stored":
            stored = _stored(event, packer, locate)
            if sessions is not None and stored.session is not None:
                stored.session = sessions.name(stored.session)
            if linker is not None and stored.medium == "gpu":
                told = Told(event.tokens, event.keys, event.media_keys, event.salt, event.in_map)
                stored.links = linker.links(told, len(event.hashes), stored.block_size, stored.lora)
            if salts is not None and event.in_map:
                adapter = event.lora_name is not None
                stored.salt = salt_name(event.salt, event.keys, salts, adapter=adapter)
            events.append(stored)
        elif kind == "cleared":
            events.append(Cleared(locate(event.medium)[0] if event.medium else None))
    if run is not None:
        events.append(_removed(run, packer, locate))
    return events, skipped


def _at_one_location(one: WireEvent, other: WireEvent, locate: Locate) -> bool:
    """Tell whether two spellings (nil and 0, nil and GPU) mean the same medium and group."""
    same_group = (one.group_idx or 0) == (other.group_idx or 0)
    return same_group and locate(one.medium) == locate(other.medium)


def _removed(run: WireEvent, packer: HashPacker, locate: Locate) -> Removed:
    medium, raw_medium, _ = locate(run.medium)
    return Removed(packer.pack(run.hashes), medium, raw_medium, run.group_idx or 0)


def _stored(event: WireEvent, packer: HashPacker, locate: Locate) -> Stored:
    hashes = event.hashes
    parent = event.parent
    try:  # without a call in between, for a store is mostly of one hash
        words = packer.words
        packed = words[len(hashes)](*hashes)
        packed_parent = None if parent is None else words[1](parent)
    except (struct.error, IndexError):
        packed = packer.pack(hashes)
        packed_parent = None if parent is None else packer.pack((parent,))
    block_size = event.block_size
    if (
        event.lora_id is None
        and event.medium is None
        and hashes
        and not event.in_map
        and tokens_in_last(len(hashes), block_size, event.tokens) != block_size
    ):
        raise EventError("bad_block_size")  # perhaps no fault, but a page that is not full
    lora = event.lora_name
    if type(lora) is not str:  # none, or a foreign map
        lora = None if event.lora_id is None else str(event.lora_id)
    medium, raw_medium, store_only = locate(event.medium)
    return Stored(
        packed,
        block_size,
        len(hashes) * block_size,
        packed_parent,
        medium,
        raw_medium,
        event.group_idx or 0,
        event.spec_kind,
        event.sliding_window,
        lora,
        event.session,
        store_only,
    )
