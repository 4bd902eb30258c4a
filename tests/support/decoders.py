"""A payload by each of the three decoders: event by event, at once, and scanned."""

from __future__ import annotations

from typing import Any

import msgspec

from connectors.engines.catalogue import CATALOGUE, Catalogue
from connectors.engines.recognition import StreamEra
from connectors.frames.bundle import Bundle, Frames
from connectors.normalise.columns import DONE, END, START, STATUS
from connectors.normalise.fast_decoder import FastDecoder
from connectors.normalise.forwarding import Forwarding
from connectors.normalise.links import Linker
from connectors.normalise.pseudonyms import Pseudonyms
from connectors.normalise.reference_decoder import ReferenceDecoder
from connectors.normalise.scan import scan
from connectors.normalise.scanned import Scanned
from schemas.events import Batch, Event

MAX_FRAME_BYTES = 1 << 20
_decode = msgspec.msgpack.Decoder(Batch).decode


def frame(seq: int, payload: bytes) -> Frames:
    """Return the message that brings a payload."""
    return (b"t", seq.to_bytes(8, "big"), payload)


class Decoders:
    """All three with the same settings."""

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
        self.fast = FastDecoder(self.forwarding, catalogue)

    def by_event(self, payload: bytes, seq: int = 3) -> Batch:
        return self.reference.decode_batch(payload, seq=seq, received_at=self.received_at, replayed=False)

    def at_once(self, payload: bytes, seq: int = 3) -> Batch | None:
        return self.fast.decode_batch(payload, seq, self.received_at, False)

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
        """Return what a batch of these events becomes by all of them.

        The two quick ways may leave it to the first unless `quick` says that they do, or that they do not.
        """
        payload = msgspec.msgpack.encode([1.5, events, 0])
        batch = self.by_event(payload)
        for found in (self.at_once(payload), *self.scanned(payload)):
            assert found in ((batch, None) if quick is None else (batch,) if quick else (None,))
        return batch.events
