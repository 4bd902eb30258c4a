"""Why a frame or an event could not be understood, as exceptions that carry the bounded reason."""

from __future__ import annotations

from schemas.reasons import UndecodableReason


class InputError(Exception):
    """Input that is skipped and counted under `reason`."""

    def __init__(self, reason: UndecodableReason) -> None:
        super().__init__(reason)
        self.reason: UndecodableReason = reason


class FrameError(InputError):
    """Nothing of a frame is usable."""


class EventError(InputError):
    """One event of a batch is not usable; its neighbours are."""


class UnknownType(EventError):
    """An event is of a type that we do not know, so nobody knows what it changes."""

    def __init__(self, name: str, medium: str | None) -> None:
        """`medium` is the canonical name of the medium that the event names, if it names one."""
        super().__init__("unknown_type")
        self.name = name
        self.medium = medium
