"""Find the timestamp and the undecoded events of a payload."""

from __future__ import annotations

from math import isfinite

from msgspec import DecodeError, Raw, ValidationError
from msgspec.msgpack import Decoder

from connectors.normalise.bounds import array_length
from connectors.normalise.errors import FrameError
from connectors.normalise.wire import EnvelopeArray, EnvelopeMap
from schemas.reasons import UndecodableReason

MAX_EVENTS = 1 << 20
"""Events in one batch; more are no batch of an engine, whose events have tens of bytes each."""

_ENVELOPE_ARRAY = Decoder(EnvelopeArray)
_ENVELOPE_MAP = Decoder(EnvelopeMap)
_EVENTS = Decoder(list[Raw])
_NUMBER = Decoder(float)
_ANYTHING = Decoder(Raw)


def open_envelope(payload: bytes) -> tuple[float | None, list[Raw]]:
    """Return the timestamp, None where it is no finite number, and the events.

    Raises FrameError when the payload is not one MessagePack value or not an envelope.
    """
    envelope = _envelope(payload)
    return _timestamp(envelope.ts), _events(envelope.events)


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


def _timestamp(raw: Raw) -> float | None:
    try:
        ts = _NUMBER.decode(raw)
    except DecodeError:
        return None
    return ts if isfinite(ts) else None
