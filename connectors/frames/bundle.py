"""Messages that came together, side by side in memory, so that compiled code can run through them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import overload

import numpy as np
from numpy.typing import NDArray

from connectors.frames.framing import MAX_SEQUENCE, SEQUENCE_BYTES, Frames

_TOPIC = b""


class Bundle(Sequence[Frames]):
    """The messages of one source, in order. As a sequence it gives their frames, without the topic.

    Messages that are not of three frames with a sequence number are kept as they came; their number is -1
    and they have no payload.
    """

    __slots__ = ("data", "ends", "odd", "seqs", "starts")

    def __init__(
        self,
        data: NDArray[np.uint8],
        starts: NDArray[np.int64],
        ends: NDArray[np.int64],
        seqs: NDArray[np.int64],
        odd: dict[int, Frames],
    ) -> None:
        """Payload i is `data[starts[i]:ends[i]]`; `odd` has the other messages by index."""
        self.data = data
        self.starts = starts
        self.ends = ends
        self.seqs = seqs
        self.odd = odd

    @classmethod
    def of(cls, messages: Iterable[Frames]) -> Bundle:
        """Put messages together."""
        payloads: list[bytes] = []
        seqs: list[int] = []
        odd: dict[int, Frames] = {}
        for frames in messages:
            seq = -1
            payload = b""
            if len(frames) == 3 and len(frames[1]) == SEQUENCE_BYTES:
                seq = int.from_bytes(frames[1], "big")
                payload = frames[2]
            if not 0 <= seq < MAX_SEQUENCE:
                odd[len(seqs)] = frames
                seq = -1
                payload = b""
            seqs.append(seq)
            payloads.append(payload)
        bounds = np.zeros(len(seqs) + 1, np.int64)
        np.cumsum(np.fromiter(map(len, payloads), np.int64, len(payloads)), out=bounds[1:])
        # Not bytes: code is compiled for each type of arrays, and those of read-only memory are another one.
        data = np.frombuffer(bytearray().join(payloads), np.uint8)
        return cls(data, bounds[:-1], bounds[1:], np.array(seqs, np.int64), odd)

    def __len__(self) -> int:
        return int(self.seqs.size)

    @overload
    def __getitem__(self, index: int) -> Frames: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Frames]: ...
    def __getitem__(self, index: int | slice) -> Frames | Sequence[Frames]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if not 0 <= index < len(self):
            raise IndexError(index)
        if index in self.odd:
            return self.odd[index]
        payload = self.data[self.starts[index] : self.ends[index]].tobytes()
        return _TOPIC, int(self.seqs[index]).to_bytes(SEQUENCE_BYTES, "big"), payload

    def split(self, size: int, overhead: int) -> tuple[Bundle, Bundle]:
        """Return the first messages and the others, without copying.

        The first ones take `size` bytes at most, with `overhead` for each, but they are one at least.
        """
        taken = np.cumsum(self.ends - self.starts + overhead)
        at = max(1, int(np.searchsorted(taken, size, side="right")))
        return self._part(0, at), self._part(at, len(self))

    def _part(self, first: int, end: int) -> Bundle:
        odd = {index - first: frames for index, frames in self.odd.items() if first <= index < end}
        starts, ends = self.starts[first:end], self.ends[first:end]
        # Payloads lie in order, with what else came of their messages between them.
        has_payload = starts < ends
        behind = int(ends.max(initial=0, where=has_payload))
        before = int(starts.min(initial=behind, where=has_payload))
        return Bundle(
            self.data[before:behind],
            np.where(has_payload, starts - before, 0),
            np.where(has_payload, ends - before, 0),
            self.seqs[first:end],
            odd,
        )

    @property
    def size(self) -> int:
        """Bytes of all payloads."""
        return int(self.data.size)
