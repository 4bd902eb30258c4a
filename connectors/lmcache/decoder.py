"""Decodes reports of LMCache's servers to events, by the place that each is about. No IO."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field

from connectors.engines.media import MAX_NAME_CHARACTERS
from connectors.kafka.encoding import UNDECODABLE
from connectors.lmcache.accesses import accessed, are_hits, are_reads, object_group, object_hash
from connectors.lmcache.declarations import Compartment, Declarations
from connectors.lmcache.loads import Loads, LoadsOfServers, Object
from connectors.lmcache.wire import CacheBatch, Entry, decode_batch, decode_report
from connectors.normalise.errors import EventError
from connectors.normalise.pseudonyms import Pseudonyms
from schemas.events import Capacity, Event, Removed, Stored, Undecodable
from schemas.reasons import ReportRefusal, UndecodableReason

_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")


@dataclass(frozen=True, slots=True)
class Place:
    """Where objects of one model are."""

    instance: str
    """The server that has them; empty: several share the storage."""
    backend: str
    """Storage in the second tier, or `l1-` and the kind of memory that several servers map; empty: the
    server's memory, which dies with it."""
    model: str


@dataclass(slots=True)
class Part:
    """What a batch says of one place."""

    events: list[Event] = field(default_factory=list)
    engine_events: int = 0
    """Objects it is about, however many events they make."""
    skipped: int = 0
    """Of them, those that change nothing of what is held."""


@dataclass(slots=True)
class Reported:
    """A batch of one server."""

    instance: str
    incarnation: int
    """Of the server: second since the epoch at which it started."""
    seq: int
    """From 1 in each incarnation."""
    ts: float
    """Clock of the server, seconds since the epoch; 0 if it does not say."""
    size: int
    """Bytes it came in."""
    parts: dict[Place, Part]
    loads_stay: bool = False
    """Whether something that was left out as loaded for a request is in memory for longer than for that."""


class ReportDecoder:
    """Decodes what servers send; token ids and salts stay here."""

    def __init__(self, models: Collection[str], salts: Pseudonyms | None, *, retains: bool = False) -> None:
        """`salts` names salted objects; without it they are Undecodable. `retains`: what servers load from
        storage stays in their memory; otherwise it is left out there."""
        self.models = tuple(models)
        self._salts = salts
        self._declarations = Declarations()
        self._loads = None if retains else LoadsOfServers()

    def decode(self, payload: bytes) -> tuple[list[Reported], Counter[ReportRefusal]]:
        """Return the batches in a Kafka record or a request, in order, and what was left out and why.

        Never raises for what a server sends.
        """
        refused: Counter[ReportRefusal] = Counter()
        try:
            raw = decode_report(payload).batches
        except UNDECODABLE:
            refused["malformed"] += 1
            return [], refused
        found = []
        for one in raw:
            try:
                batch = decode_batch(one)
            except UNDECODABLE:
                refused["bad_batch"] += 1
                continue
            if batch.tier == "l2" and not batch.backend and batch.event_type != "access":
                refused["bad_batch"] += 1
                continue
            found.append(self._reported(batch, memoryview(one).nbytes, refused))
        return found, refused

    def keep(self, servers: Collection[str]) -> None:
        """Forget what servers other than these have declared and loaded."""
        self._declarations.keep(servers)
        if self._loads is not None:
            self._loads.keep(servers)

    def _reported(self, batch: CacheBatch, size: int, refused: Counter[ReportRefusal]) -> Reported:
        own = [entry for entry in batch.entries if entry.key.model_name in self.models]
        if len(own) < len(batch.entries):
            refused["unknown_model"] += len(batch.entries) - len(own)
        reported = Reported(batch.instance_id, batch.incarnation, batch.seq, batch.ts, size, {})
        loads = None
        if self._loads is not None:
            loads = self._loads.of(batch.instance_id, batch.incarnation, batch.seq)
        reported.loads_stay = loads is not None and loads.stay(batch.ts)
        if batch.tier not in ("l1", "l2"):
            self._unknown(batch, reported, None)
        elif batch.event_type == "config":
            self._capacity(batch, reported)
        elif batch.event_type == "access":
            if loads is not None and are_reads(batch.tier, batch.backend):
                self._read(loads, batch, own)
            self._accesses(batch, own, reported)
        elif batch.event_type in ("store", "delete"):
            self._placements(batch, own, reported, loads if batch.tier == "l1" else None)
        else:
            self._unknown(batch, reported, _medium(batch)[0])
        return reported

    def _read(self, loads: Loads, batch: CacheBatch, entries: list[Entry]) -> None:
        for entry in entries:
            try:
                packed, group = object_hash(entry.key, self._salts), object_group(entry.key)
            except EventError:
                continue  # a store of such an object cannot be decoded either
            loads.read((entry.key.model_name, group, packed), batch.ts)

    def _placements(
        self, batch: CacheBatch, entries: list[Entry], reported: Reported, loads: Loads | None
    ) -> None:
        medium, raw_medium = _medium(batch)
        removals: dict[tuple[str, int], list[bytes]] = {}
        for entry in entries:
            model = entry.key.model_name
            part = reported.parts.setdefault(_place(batch, model), Part())
            part.engine_events += 1
            try:
                packed, group = object_hash(entry.key, self._salts), object_group(entry.key)
            except EventError as error:
                _undecodable(part.events, error.reason)
                continue
            if loads is not None and _is_load(loads, batch, (model, group, packed)):
                part.skipped += 1
                continue
            if batch.event_type == "delete":
                removals.setdefault((model, group), []).append(packed)
                continue
            tokens = len(entry.token_ids)
            part.events.append(
                Stored(
                    packed,
                    tokens,
                    tokens,
                    medium=medium,
                    raw_medium=raw_medium,
                    group_idx=group,
                    size_bytes=entry.size_bytes,
                )
            )
        for (model, group), hashes in removals.items():
            reported.parts[_place(batch, model)].events.append(
                Removed(b"".join(hashes), medium, raw_medium, group)
            )

    def _accesses(self, batch: CacheBatch, entries: list[Entry], reported: Reported) -> None:
        nowhere = batch.tier == "l2" and not batch.backend
        medium, raw_medium = (None, None) if batch.tier == "l1" else _medium(batch)
        for model in self.models:
            of_model = [entry for entry in entries if entry.key.model_name == model]
            if not of_model:
                continue
            place = Place(batch.instance_id, "", model) if nowhere else _place(batch, model)
            part = reported.parts.setdefault(place, Part())
            part.engine_events += len(of_model)
            if nowhere:
                part.skipped += len(of_model)
                continue
            hits = are_hits(batch.tier, batch.backend)
            found, left_out = accessed(of_model, medium, raw_medium, self._salts, hits=hits)
            part.events += found
            part.skipped += left_out

    def _capacity(self, batch: CacheBatch, reported: Reported) -> None:
        """Add the capacities that a batch declares, 0 for those that it ends. One of 0 declares nothing."""
        where, medium = _place(batch, ""), _medium(batch)[0]
        own = Compartment(where.backend, medium) if where.instance and batch.capacity_bytes else None
        revision = batch.incarnation, batch.capacity_revision
        ended = self._declarations.take(batch.instance_id, revision, own)
        declared = [(where, Capacity(medium, batch.capacity_bytes))] if batch.capacity_bytes else []
        declared += [
            (Place(batch.instance_id, backend, ""), Capacity(medium, 0)) for backend, medium in sorted(ended)
        ]
        for place, event in declared:
            for model in self.models:
                part = reported.parts.setdefault(Place(place.instance, place.backend, model), Part())
                part.events.append(event)
                part.engine_events = 1

    def _unknown(self, batch: CacheBatch, reported: Reported, medium: str | None) -> None:
        """Report an unknown event or tier for every model, as it may change what any of them has there."""
        name = batch.event_type if _PLAIN.fullmatch(batch.event_type) else None
        count = max(len(batch.entries), 1)
        event = Undecodable("unknown_type", None, count, name, medium)
        for model in self.models:
            place = Place(batch.instance_id, "", model) if medium is None else _place(batch, model)
            reported.parts[place] = Part([event], count)


def _is_load(loads: Loads, batch: CacheBatch, one: Object) -> bool:
    """Return whether an object enters memory, or leaves it, only as it was loaded for a request."""
    return loads.deleted(one) if batch.event_type == "delete" else loads.stored(one, batch.ts)


def _place(batch: CacheBatch, model: str) -> Place:
    if batch.tier == "l1":
        shared = batch.shared and batch.backend
        return Place("", f"l1-{batch.backend}", model) if shared else Place(batch.instance_id, "", model)
    return Place("" if batch.shared else batch.instance_id, batch.backend, model)


def _medium(batch: CacheBatch) -> tuple[str, str | None]:
    """Return the canonical medium, and LMCache's word where that differs."""
    if batch.tier == "l1" and batch.backend == "dram":
        return "cpu", "dram"
    return f"lmcache-{batch.tier}-{batch.backend}".casefold()[:MAX_NAME_CHARACTERS], None


def _undecodable(events: list[Event], reason: UndecodableReason) -> None:
    """Note an object that cannot be decoded, together with others for the same reason."""
    last = events[-1] if events else None
    if isinstance(last, Undecodable) and last.reason == reason:
        last.count += 1
    else:
        events.append(Undecodable(reason))
