"""One payload through both decoders, which must agree, with guards around what compiled code touches."""

from __future__ import annotations

import gc
import random
import time
from collections import Counter
from dataclasses import dataclass, field

import msgspec
import numpy as np

from connectors.engines.catalogue import CATALOGUE
from connectors.engines.recognition import StreamEra
from connectors.normalise.columns import DONE, END, EVENTS, ROWS, START, STATUS
from connectors.normalise.errors import FrameError
from connectors.normalise.forwarding import Forwarding
from connectors.normalise.links import Linker
from connectors.normalise.pseudonyms import Pseudonyms
from connectors.normalise.reference_decoder import ReferenceDecoder
from connectors.normalise.scan import content_of, names_of, scan_single
from connectors.normalise.scan_tables import scan_tables
from connectors.normalise.scanner.payloads import transcode
from schemas.events import Batch, Undecodable
from tests.fuzz.guarded_memory import GuardedMemory

MAX_PAYLOAD_BYTES = 512 << 10
RECEIVED_AT = 1_800_000_000.25
SEQUENCES = (0, 5, 1 << 40, (1 << 48) - 1)
ODD_ROOMS = (0, 1, 639, 640, 641, 1_279, 1_281, 2_000)
"""Bytes of output at times, around the bounds at which the scanner gives up."""

_decode = msgspec.msgpack.Decoder(Batch).decode


class DecodersDisagree(AssertionError):
    """Two decoders made different things of one payload."""


@dataclass(slots=True)
class Decoders:
    """What became of the payloads so far."""

    outcomes: Counter[str] = field(default_factory=Counter)
    """Payloads that each decoder took, and of the reference decoder also by reason."""
    slowest_seconds: float = 0.0
    """Processor time of the slowest payload in the reference decoder."""
    slowest: bytes = b""
    _input: GuardedMemory = field(default_factory=lambda: GuardedMemory(MAX_PAYLOAD_BYTES))
    _output: GuardedMemory = field(default_factory=lambda: GuardedMemory(2 * MAX_PAYLOAD_BYTES + (65 << 10)))
    _linker: Linker = field(default_factory=lambda: Linker(b"a key of the fuzzer"))
    _names: Pseudonyms = field(default_factory=lambda: Pseudonyms(b"a key of the fuzzer"))

    def check(self, payload: bytes, rng: random.Random) -> None:
        """Raises DecodersDisagree."""
        seq = rng.choice(SEQUENCES)
        forwarding = Forwarding(
            self._names if rng.random() < 0.3 else None,
            self._linker if rng.random() < 0.5 else None,
            self._names if rng.random() < 0.5 else None,
        )
        expected = self._reference(payload, seq, forwarding)
        room = 2 * len(payload) + (64 << 10) if rng.random() < 0.7 else rng.choice((*ODD_ROOMS, len(payload)))
        for start in (self._input.put_last(payload), self._input.put_first(payload)):
            self._scanned(payload, start, seq, forwarding, room, expected)
        single = scan_single(payload, seq, RECEIVED_AT, forwarding)
        self.outcomes["scanned alone"] += single is not None
        if single is not None and single.batch != expected:
            raise DecodersDisagree(f"scanner: {single.batch}, reference decoder: {expected}")

    def _reference(
        self,
        payload: bytes,
        seq: int,
        forwarding: Forwarding,
    ) -> Batch | None:
        decoder = ReferenceDecoder(StreamEra(), forwarding)
        gc.disable()  # a collection of everything else is not the payload's fault
        began = time.process_time()
        try:
            batch = decoder.decode_batch(payload, seq=seq, received_at=RECEIVED_AT, replayed=False)
        except FrameError as error:
            self.outcomes[f"refused: {error.reason}"] += 1
            return None
        finally:
            seconds = time.process_time() - began
            gc.enable()
            if seconds > self.slowest_seconds:
                self.slowest_seconds, self.slowest = seconds, payload
        self.outcomes["reference"] += 1
        self.outcomes.update(
            f"left out: {reason}"
            for reason in {event.reason for event in batch.events if isinstance(event, Undecodable)}
        )
        return batch

    def _scanned(
        self,
        payload: bytes,
        start: int,
        seq: int,
        forwarding: Forwarding,
        room: int,
        expected: Batch | None,
    ) -> None:
        data, out = self._input.bytes, self._output.bytes
        target = out[len(out) - room :]
        result = np.zeros((ROWS, 1), np.int64)
        tables = scan_tables(CATALOGUE)
        used = transcode(
            data,
            np.array([[start], [start + len(payload)], [seq]]),
            np.array([[1], [0], np.array([RECEIVED_AT]).view(np.int64)]),
            1 << 24,
            content_of(forwarding.linker),
            *names_of(forwarding),
            tables.forms,
            tables.media,
            target,
            result,
        )
        if result[STATUS, 0] != DONE:
            if used:
                raise DecodersDisagree(f"the scanner gave up and wrote {used} bytes")
            return
        self.outcomes["scanned"] += start == 0
        batch = _decode(target[result[START, 0] : result[END, 0]].tobytes())
        if batch != expected or result[EVENTS, 0] != batch.engine_events or used != result[END, 0]:
            raise DecodersDisagree(f"scanner: {batch}, reference decoder: {expected}")
