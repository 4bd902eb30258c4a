"""What one emitter sees of a socket whose publisher speaks for several under one sequence of numbers.

A message of another emitter uses up a number and says nothing of this one: an empty batch stands for it. So
the stream of each emitter knows every number of the socket, and a gap or a restart concerns all of them.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from connectors.frames.bundle import Frames, is_sequence
from connectors.normalise.envelope import open_envelope
from connectors.normalise.errors import FrameError

MOST_UNCLEAR = 256
"""Messages after a loss that nobody can understand whose numbers are remembered."""

_encode = msgspec.msgpack.Encoder().encode


class Emitter:
    """One topic among those of a socket."""

    def __init__(self, topic: str) -> None:
        """`topic` is the whole topic, byte for byte."""
        self._topic = topic.encode()
        self._due: int | None = None
        """The number to come, if the publisher goes on; None before the first message."""
        self._published_at = 0.0
        """Engine time of the last batch that says one, seconds since the epoch."""
        self._unclear: list[tuple[bytes, bytes]] = []
        """Topics and growing numbers of what came beyond a loss since the last batch, and is none."""

    def view(self, messages: Iterable[Frames]) -> list[Frames]:
        """Return its own messages as they are, and those of others without their events.

        What nobody can understand of others is left out, as it decides nothing, unless its number is due, or
        the next batch shows that its number was right: then it is no part of the gap.
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
        """Remember a number beyond the one that is due; it may be as wrong as the payload."""
        last = self._unclear[-1][1] if self._unclear else None
        if (
            self._due is not None
            and int.from_bytes(number, "big") > self._due
            and (last is None or number > last)
            and len(self._unclear) < MOST_UNCLEAR
        ):
            self._unclear.append((topic, number))

    def _arrived_before(self, number: bytes, published_at: float) -> list[Frames]:
        """Return empty batches for what nobody could understand between the last batch and this number."""
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
