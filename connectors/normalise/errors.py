"""Why a frame or an event could not be understood, as exceptions that carry the bounded reason."""

from __future__ import annotations

from dataclasses import field

from connectors.process.errors import DataError
from schemas.reasons import UndecodableReason


class InputError(DataError):
    """Input that is skipped and counted under `reason`."""

    reason: UndecodableReason
    line = "{reason}"


class FrameError(InputError):
    """Nothing of a frame is usable."""


class EventError(InputError):
    """One event of a batch is not usable; its neighbours are."""


class UnknownType(EventError):
    """An event is of a type that we do not know, so we cannot say what it changes."""

    reason: UndecodableReason = field(default="unknown_type", init=False)
    name: str
    medium: str | None
    """Canonical name of the medium that the event names, if it names one."""
