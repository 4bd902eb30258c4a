"""One emitter's view of a socket whose publisher numbers the messages of several emitters together.

A message of another emitter uses up a number and says nothing about this one: an empty batch replaces it. So
the stream of each emitter sees every number of the socket, and a gap or a restart concerns all of them.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from connectors.frames.bundle import Frames, is_sequence
from connectors.normalise.envelope import open_envelope
from connectors.normalise.errors import FrameError

MOST_UNCLEAR = 256
"""Most numbers remembered of messages that come after a loss and cannot be understood."""

_encode = msgspec.msgpack.Encoder().encode


class Emitter:
    """One topic among those of a socket."""

    def __init__(self, topic: str) -> None:
        """`topic` is the whole topic, byte for byte."""
        self._topic = topic.encode()
        self._due: int | None = None
        """The number to come, if the publisher goes on; None before the first message."""
        self._published_at = 0.0
        """Engine time of the last batch that has one, seconds since the epoch."""
        self._unclear: list[tuple[bytes, bytes]] = []
        """Topics and ascending numbers of what came after a loss, since the last batch, and is no batch."""

    def view(self, messages: Iterable[Frames]) -> list[Frames]:
        """Return its own messages as they are, and those of others without their events.

        Others' messages that cannot be understood decide nothing, so they are left out, unless their number
        is due, or the next batch shows that it was right: then it is not part of the gap.
        """
        seen: list[Frames] = []
        for frames in messages:
            own = frames[0] == self._topic
            if len(frames) != 3 or not is_sequence(frames[1]):
                if own:
                    seen.append(frames)
                continue
            seq = int.from_bytes(frames[1], "big")
            before = self._published_at
            if self._is_batch(frames[2]):
                seen += self._arrived_before(frames[1], before)
                self._due = seq + 1
            elif seq == self._due:
                self._due = seq + 1
            else:
                self._note(frames[0], frames[1])
                if not own:
                    continue
            seen.append(frames if own else (frames[0], frames[1], _encode((self._published_at, ()))))
        return seen

    def _note(self, topic: bytes, number: bytes) -> None:
        """Remember a number beyond the one that is due, though it may be as wrong as the payload."""
        last = self._unclear[-1][1] if self._unclear else None
        if (
            self._due is not None
            and int.from_bytes(number, "big") > self._due
            and (last is None or number > last)
            and len(self._unclear) < MOST_UNCLEAR
        ):
            self._unclear.append((topic, number))

    def _arrived_before(self, number: bytes, published_at: float) -> list[Frames]:
        """Return empty batches for what could not be understood between the last batch and this number."""
        if not self._unclear:
            return []
        unclear, self._unclear = self._unclear, []
        empty = _encode((published_at, ()))
        return [(topic, at, empty) for topic, at in unclear if at < number]

    def _is_batch(self, payload: bytes) -> bool:
        """Tell whether a payload is a batch, and note when it was published."""
        try:
            ts, _, _ = open_envelope(payload)
        except FrameError:
            return False
        if ts is not None:
            self._published_at = ts
        return True
