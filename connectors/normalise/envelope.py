"""Find the timestamp and the undecoded events of a payload."""

from __future__ import annotations

from math import isfinite

from msgspec import DecodeError, Raw, ValidationError
from msgspec.msgpack import Decoder

from connectors.normalise.columns import MAX_RANK, NO_RANK
from connectors.normalise.errors import FrameError
from connectors.normalise.wire import EnvelopeArray, EnvelopeMap
from connectors.process.array_length import array_length
from schemas.reasons import UndecodableReason

MAX_EVENTS = 1 << 20
"""Most events in one batch; no engine sends more, as its events have tens of bytes each."""

MILLISECONDS = 1e11
"""Whole numbers from here on are milliseconds, as Mooncake sends them: in seconds this is the year 5138."""
_FLOATS = frozenset({0xCA, 0xCB})
"""First bytes of floats."""
_ENVELOPE_ARRAY = Decoder(EnvelopeArray)
_ENVELOPE_MAP = Decoder(EnvelopeMap)
_EVENTS = Decoder(list[Raw])
_NUMBER = Decoder(float)
_ANYTHING = Decoder(Raw)
_INTEGER = Decoder(int)


def open_envelope(payload: bytes) -> tuple[float | None, list[Raw], int]:
    """Return the timestamp, None where it is no finite number, the events, and the rank or NO_RANK.

    Raises FrameError when the payload is not one MessagePack value or not an envelope.
    """
    envelope = _envelope(payload)
    return _timestamp(envelope.ts), _events(envelope.events), rank_of(envelope.rank)


def _envelope(payload: bytes) -> EnvelopeArray | EnvelopeMap:
    try:
        try:
            return _ENVELOPE_ARRAY.decode(payload)
        except ValidationError:
            return _ENVELOPE_MAP.decode(payload)
    except ValidationError:
        raise FrameError(_reason_of_no_envelope(payload)) from None
    except (DecodeError, UnicodeDecodeError, RecursionError):
        raise FrameError("not_msgpack") from None


def _reason_of_no_envelope(payload: bytes) -> UndecodableReason:
    """Tell a wrong shape from bytes that are not one MessagePack value: shape is checked first."""
    try:
        _ANYTHING.decode(payload)
    except (DecodeError, RecursionError):
        return "not_msgpack"
    return "not_an_envelope"


def _events(raw: Raw) -> list[Raw]:
    if array_length(raw) > MAX_EVENTS:
        raise FrameError("not_an_envelope")
    try:
        return _EVENTS.decode(raw)
    except DecodeError:
        raise FrameError("not_an_envelope") from None
    except RecursionError:
        raise FrameError("not_msgpack") from None


def rank_of(raw: Raw) -> int:
    """Return the data-parallel rank that a batch gives, NO_RANK for anything that is no rank."""
    try:
        rank = _INTEGER.decode(raw)
    except (DecodeError, RecursionError):
        return NO_RANK
    return rank if 0 <= rank <= MAX_RANK else NO_RANK


def _timestamp(raw: Raw) -> float | None:
    try:
        ts = _NUMBER.decode(raw)
    except DecodeError:
        return None
    if not isfinite(ts):
        return None
    return ts / 1000 if ts >= MILLISECONDS and memoryview(raw)[0] not in _FLOATS else ts
