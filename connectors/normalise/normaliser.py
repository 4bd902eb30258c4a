"""Turn an engine's payload into a normalised batch."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Raw

from connectors.engines.catalogue import CATALOGUE, Catalogue
from connectors.engines.recognition import StreamEra
from connectors.frames.bundle import Bundle
from connectors.normalise.columns import NO_RANK
from connectors.normalise.errors import FrameError
from connectors.normalise.forwarding import NOTHING_FORWARDED, Forwarding
from connectors.normalise.reference_decoder import ReferenceDecoder
from connectors.normalise.scanned import Scanned
from connectors.normalise.single import COMPILED, Single
from connectors.normalise.wire import LARGE_PAYLOAD_BYTES
from schemas.events import Batch, Cleared, Event, Undecodable
from schemas.reasons import UndecodableReason

FIRST_LOOKS = 32
"""While the engine of a stream is not known, so many batches are looked at event by event to find it out."""
LOOK_EVERY = 1024
"""One in so many later batches is looked at, because an engine may be replaced by one of another version."""

_TIMELESS = b"\x92\xcb" + bytes(8) + b"\xdd"
"""How a batch begins, up to the number of its events."""


class Normaliser:
    """Decodes the payloads of one source."""

    def __init__(
        self,
        *,
        max_frame_bytes: int,
        forwarding: Forwarding = NOTHING_FORWARDED,
        clears_all: bool = False,
        catalogue: Catalogue = CATALOGUE,
    ) -> None:
        """With `clears_all` a clear that names no medium is for every one: its publisher is no engine."""
        self._clears_all = clears_all
        self._max_frame_bytes = max_frame_bytes
        self._catalogue = catalogue
        self.era = StreamEra(clears_all=clears_all)
        """What the events have shown of the engine so far."""
        self._forwarding = forwarding
        self._reference = ReferenceDecoder(self.era, forwarding, catalogue)
        self.until_look = 0
        """How many batches may still pass before one has to be looked at."""
        self._first_looks = FIRST_LOOKS
        self.rank = NO_RANK
        """Data-parallel rank that the last batch gave, NO_RANK if none."""
        self.skipped = 0
        """Events of the last batch that change nothing of what is resident, and are not in it."""

    def normalise(self, payload: bytes, *, seq: int, received_at: float, replayed: bool = False) -> Batch:
        """Return the batch in `payload`.

        Never raises for what an engine sends: an Undecodable takes the place of a bad event. A bad frame, or
        a long batch full of bad events, becomes a batch of one Undecodable at `received_at`.
        """
        self.skipped, self.rank = 0, NO_RANK
        if len(payload) > self._max_frame_bytes:
            return self._rejected("frame_too_large", seq, received_at, replayed)
        batch = self._decoded(payload, seq, received_at, replayed)
        if self._clears_all:
            for event in batch.events:
                if isinstance(event, Cleared) and event.medium is None:
                    event.medium = ""
        return batch

    def _decoded(self, payload: bytes, seq: int, received_at: float, replayed: bool) -> Batch:
        large = len(payload) > LARGE_PAYLOAD_BYTES
        if self.until_look or large:
            self.until_look -= not large
            if (single := self._scanned(payload, seq, received_at)) is not None:
                self.skipped, self.rank = single.skipped, single.rank
                single.batch.replayed = replayed
                return single.batch
        elif self._first_looks and not self.era.known:
            self._first_looks -= 1
        else:
            self.until_look = LOOK_EVERY - 1
        before = self._reference.skipped
        try:
            batch = self._reference.decode_batch(
                payload,
                seq=seq,
                received_at=received_at,
                replayed=replayed,
                together=self._together if COMPILED.scan_single else None,
            )
            self.rank = self._reference.rank
            self.skipped += self._reference.skipped - before
            return batch
        except FrameError as error:
            self.skipped = 0
            return self._rejected(error.reason, seq, received_at, replayed)

    def _scanned(self, payload: bytes, seq: int, received_at: float) -> Single | None:
        if COMPILED.scan_single is None:
            return None
        return COMPILED.scan_single(payload, seq, received_at, self._forwarding, self._catalogue)

    def _together(self, raw_events: Sequence[Raw]) -> Sequence[Event] | None:
        """Decode events with the scanner; return None when one of them is not well-formed."""
        payload = _TIMELESS + len(raw_events).to_bytes(4, "big") + b"".join(raw_events)
        single = self._scanned(payload, 0, 0.0)
        if single is None:
            return None
        self.skipped += single.skipped
        return single.batch.events

    def unnumbered(self) -> None:
        """Note that the source's messages have no sequence number."""
        self.era.unnumbered(self._catalogue.engines)

    def scan(self, messages: Bundle, received_at: float, scanned: Scanned | None = None) -> Scanned:
        """Return the well-formed batches encoded; those given up are for `normalise`.

        `scanned` is the result if they were already scanned, together with those of others.
        """
        count = len(messages)
        if self.until_look > count:
            self.until_look -= count
        elif count:
            self._look(messages[0][-1])
        if scanned is not None:
            return scanned
        # numba takes a second to import, and not every process scans
        from connectors.normalise.scan import scan

        return scan(
            messages,
            received_at,
            max_frame_bytes=self._max_frame_bytes,
            forwarding=self._forwarding,
            catalogue=self._catalogue,
        )

    def passed(self, batches: int) -> None:
        """Count batches, fewer than `until_look`, that were scanned without this object."""
        self.until_look -= batches

    def _look(self, payload: bytes) -> None:
        """Learn from a payload which engine sent it."""
        self.until_look = 0
        self.normalise(payload, seq=0, received_at=0.0)

    @staticmethod
    def _rejected(reason: UndecodableReason, seq: int, received_at: float, replayed: bool) -> Batch:
        return Batch(seq, received_at, received_at, [Undecodable(reason, seq)], 0, replayed)
