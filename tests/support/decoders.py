"""A payload by both decoders: event by event, and scanned, with others or by itself."""

from __future__ import annotations

from typing import Any

import msgspec

from connectors.engines.catalogue import CATALOGUE, Catalogue
from connectors.engines.recognition import StreamEra
from connectors.frames.bundle import Bundle, Frames
from connectors.normalise.columns import DONE, END, START, STATUS
from connectors.normalise.forwarding import Forwarding
from connectors.normalise.links import Linker
from connectors.normalise.pseudonyms import Pseudonyms
from connectors.normalise.reference_decoder import ReferenceDecoder
from connectors.normalise.scan import scan, scan_single
from connectors.normalise.scanned import Scanned
from schemas.events import Batch, Event

MAX_FRAME_BYTES = 1 << 20
_decode = msgspec.msgpack.Decoder(Batch).decode


def frame(seq: int, payload: bytes) -> Frames:
    """Return the message that brings a payload."""
    return (b"t", seq.to_bytes(8, "big"), payload)


class Decoders:
    """Both with the same settings."""

    def __init__(
        self,
        *,
        linker: Linker | None = None,
        salts: Pseudonyms | None = None,
        sessions: Pseudonyms | None = None,
        catalogue: Catalogue = CATALOGUE,
        received_at: float = 2.0,
    ) -> None:
        self.forwarding, self.catalogue = Forwarding(sessions, linker, salts), catalogue
        self.received_at = received_at
        self.reference = ReferenceDecoder(StreamEra(), self.forwarding, catalogue)

    def by_event(self, payload: bytes, seq: int = 3) -> Batch:
        return self.reference.decode_batch(payload, seq=seq, received_at=self.received_at, replayed=False)

    def single(self, payload: bytes, seq: int = 3) -> Batch | None:
        found = scan_single(payload, seq, self.received_at, self.forwarding, self.catalogue)
        return None if found is None else found.batch

    def scan(self, *payloads: bytes, first: int = 3) -> Scanned:
        bundle = Bundle.of(frame(seq, payload) for seq, payload in enumerate(payloads, first))
        return scan(
            bundle,
            self.received_at,
            max_frame_bytes=MAX_FRAME_BYTES,
            forwarding=self.forwarding,
            catalogue=self.catalogue,
        )

    def scanned(self, *payloads: bytes, first: int = 3) -> list[Batch | None]:
        """Return what the scanner makes of payloads of one stream; None: it gave one up."""
        result = self.scan(*payloads, first=first)
        return [
            _decode(result.encoded[start:end].tobytes()) if status == DONE else None
            for status, start, end in result.columns[[STATUS, START, END]].T.tolist()
        ]

    def agreed(self, *events: Any, quick: bool | None = None) -> list[Event]:
        """Return what a batch of these events becomes by both.

        The scanner may leave it to the other unless `quick` says that it does, or that it does not.
        """
        payload = msgspec.msgpack.encode([1.5, events, 0])
        batch = self.by_event(payload)
        for found in (self.single(payload), *self.scanned(payload)):
            assert found in ((batch, None) if quick is None else (batch,) if quick else (None,))
        return batch.events
