"""Decode a batch of well-formed events of one encoding at once: the hot path.

Gives up (None) on anything unusual, which `connectors.careful` then decodes. Where it does not give up,
both return the same.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from math import isfinite

from msgspec import DecodeError
from msgspec.msgpack import Decoder

from connectors.errors import EventError
from connectors.hashes import HashPacker
from connectors.media import canonical_medium
from connectors.wire import (
    ArrayBatch,
    ClearedArray,
    ClearedMap,
    Hash,
    MapBatch,
    MapBatchWithSessions,
    Metadata,
    RemovedArray,
    RemovedMap,
    StoredArray,
    StoredMap,
    StoredMapWithSession,
)
from schemas.events import Batch, Cleared, Event, Removed, Stored

WireBatch = ArrayBatch | MapBatch | MapBatchWithSessions
WireRemoved = RemovedArray | RemovedMap
WireStored = StoredArray | StoredMap | StoredMapWithSession
WireEvent = WireStored | WireRemoved | ClearedArray | ClearedMap


class TypedDecoder:
    """Decodes the payloads of one source as long as they are well-formed; tries the last encoding first."""

    def __init__(self, *, forward_session_ids: bool) -> None:
        self._decode: Callable[[bytes], WireBatch] = Decoder(ArrayBatch).decode
        self._decode_other: Callable[[bytes], WireBatch] = (
            Decoder(MapBatchWithSessions).decode if forward_session_ids else Decoder(MapBatch).decode
        )
        self._packer = HashPacker()

    def decode_batch(self, payload: bytes, seq: int, received_at: float, replayed: bool) -> Batch | None:
        """Return the batch, or None when anything in it is not well-formed or both encodings are mixed."""
        try:
            try:
                wire = self._decode(payload)
            except DecodeError:
                wire = self._decode_other(payload)
                self._decode, self._decode_other = self._decode_other, self._decode
            if not isfinite(wire.ts):
                return None
            events = _normalised(wire.events, self._packer)
        except (DecodeError, UnicodeDecodeError, RecursionError, EventError):
            return None
        return Batch(seq, wire.ts, received_at, events, len(wire.events), replayed)


def _normalised(wire_events: Sequence[WireEvent], packer: HashPacker) -> list[Event]:
    """Return the events in order, adjacent removals of one medium and group merged."""
    events: list[Event] = []
    run: WireRemoved | None = None  # takes the hashes of the removals that follow it
    hashes: list[Hash] = []
    for event in wire_events:
        # Comparing types, because isinstance takes several times as long for msgspec's structs.
        if type(event) is RemovedMap or type(event) is RemovedArray:
            if run is not None:
                same = event.group_idx == run.group_idx and event.medium == run.medium
                if same or _of_one_place(event, run):
                    hashes += event.block_hashes
                    continue
                events.append(_removed(run, packer))
            run = event
            hashes = event.block_hashes
            continue
        if run is not None:
            events.append(_removed(run, packer))
            run = None
        if type(event) is StoredMap or type(event) is StoredArray or type(event) is StoredMapWithSession:
            events.append(_stored(event, packer))
        else:
            events.append(Cleared())
    if run is not None:
        events.append(_removed(run, packer))
    return events


def _of_one_place(one: WireRemoved, other: WireRemoved) -> bool:
    """Tell whether two spellings (nil and 0, nil and GPU) mean the same medium and group."""
    return (one.group_idx or 0) == (other.group_idx or 0) and canonical_medium(
        one.medium
    ) == canonical_medium(other.medium)


def _removed(run: WireRemoved, packer: HashPacker) -> Removed:
    medium, raw_medium = canonical_medium(run.medium)
    return Removed(packer.pack(run.block_hashes), medium, raw_medium, run.group_idx or 0)


def _stored(event: WireStored, packer: HashPacker) -> Stored:
    hashes = event.block_hashes
    parent = event.parent_block_hash
    try:  # without a call in between, for a store is mostly of one hash
        words = packer.words
        packed = words[len(hashes)](*hashes)
        packed_parent = None if parent is None else words[1](parent)
    except (struct.error, IndexError):
        packed = packer.pack(hashes)
        packed_parent = None if parent is None else packer.pack((parent,))
    block_size = event.block_size
    lora = event.lora_name
    if lora is None or isinstance(lora, Metadata):
        lora = None if event.lora_id is None else str(event.lora_id)
    medium, raw_medium = canonical_medium(event.medium)
    return Stored(
        packed,
        block_size,
        len(hashes) * block_size,
        packed_parent,
        medium,
        raw_medium,
        event.group_idx or 0,
        event.kv_cache_spec_kind,
        event.kv_cache_spec_sliding_window,
        lora,
        event.session_id if type(event) is StoredMapWithSession else None,
    )
