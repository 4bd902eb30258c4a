"""Messages that came together, side by side in memory, so that compiled code can run through them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import overload

import numpy as np
from numpy.typing import NDArray

Frames = Sequence[bytes]
"""The frames of one ZMQ message: topic, sequence number (8 bytes, big-endian), payload."""

MAX_SEQUENCE = 1 << 48
"""Engines count batches from 0 and get nowhere near: random bytes must not move a position."""
SEQUENCE_BYTES = 8
SEQUENCE_HEAD = bytes(SEQUENCE_BYTES - (MAX_SEQUENCE.bit_length() - 1) // 8)
"""What every sequence frame begins with, as the numbers stay below MAX_SEQUENCE."""


def is_sequence(frame: bytes) -> bool:
    """Tell whether a frame can be a sequence number."""
    return len(frame) == SEQUENCE_BYTES and frame.startswith(SEQUENCE_HEAD)


_TOPIC = b""

MESSAGE_START, MESSAGE_END, MESSAGE_SEQ = range(3)
"""Rows of a bundle's table; column i is message i."""


class Bundle(Sequence[Frames]):
    """The messages of one source, in order. As a sequence it gives their frames, without the topic.

    `data` has the payloads, one after the other; from the compiled receiver also what came between them,
    topics and numbers. So its size, and what is shared out by that, differs a little by receiver.

    Messages that are not of three frames with a sequence number are kept as they came; their number is -1
    and they have no payload.
    """

    __slots__ = ("data", "malformed", "table")

    def __init__(
        self,
        data: NDArray[np.uint8],
        table: NDArray[np.int64],
        malformed: dict[int, Frames],
    ) -> None:
        """Payload i is `data` from its start to its end; `malformed` has the other messages by index.

        The table is in row-major order: code is compiled for one memory layout.
        """
        self.data = data
        self.table = table
        self.malformed = malformed

    @classmethod
    def of(cls, messages: Iterable[Frames]) -> Bundle:
        """Return a bundle of these messages."""
        payloads: list[bytes] = []
        seqs: list[int] = []
        malformed: dict[int, Frames] = {}
        for frames in messages:
            seq = -1
            payload = b""
            if len(frames) == 3 and len(frames[1]) == SEQUENCE_BYTES:
                seq = int.from_bytes(frames[1], "big")
                payload = frames[2]
            if not 0 <= seq < MAX_SEQUENCE:
                malformed[len(seqs)] = frames
                seq = -1
                payload = b""
            seqs.append(seq)
            payloads.append(payload)
        ends = list(accumulate(map(len, payloads), initial=0))
        table = np.array([ends[:-1], ends[1:], seqs], np.int64)
        # Not bytes: code is compiled for each type of array, and one over read-only memory is another type.
        data = np.frombuffer(bytearray().join(payloads), np.uint8)
        return cls(data, table, malformed)

    def __len__(self) -> int:
        count: int = self.table.shape[1]
        return count

    @overload
    def __getitem__(self, index: int) -> Frames: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Frames]: ...
    def __getitem__(self, index: int | slice) -> Frames | Sequence[Frames]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if not 0 <= index < len(self):
            raise IndexError(index)
        if index in self.malformed:
            return self.malformed[index]
        start, end, seq = self.table[:, index].tolist()
        return _TOPIC, seq.to_bytes(SEQUENCE_BYTES, "big"), self.data[start:end].tobytes()

    def split(self, size: int, overhead: int) -> tuple[Bundle, Bundle]:
        """Return the first messages and the others, without copying.

        The first ones take at most `size` bytes, with `overhead` for each, but there is at least one.
        """
        taken = np.cumsum(self.table[MESSAGE_END] - self.table[MESSAGE_START] + overhead)
        at = max(1, int(np.searchsorted(taken, size, side="right")))
        return self._part(0, at), self._part(at, len(self))

    def _part(self, first: int, end: int) -> Bundle:
        malformed = {
            index - first: frames for index, frames in self.malformed.items() if first <= index < end
        }
        table = self.table[:, first:end].copy()
        starts, ends = table[MESSAGE_START], table[MESSAGE_END]
        # Payloads lie in order, and the other frames of their messages may lie between them.
        has_payload = starts < ends
        behind = int(ends.max(initial=0, where=has_payload))
        before = int(starts.min(initial=behind, where=has_payload))
        table[:MESSAGE_SEQ] = np.where(has_payload, table[:MESSAGE_SEQ] - before, 0)
        return Bundle(self.data[before:behind], table, malformed)

    @property
    def size(self) -> int:
        """Bytes of all payloads, and of other frames that lie between them."""
        size: int = self.data.size
        return size


_Numbers = NDArray[np.int64]


class Bundles:
    """What came of several sources: at least one message of each, all of three frames with their numbers."""

    __slots__ = ("begins", "data", "ends", "table")

    def __init__(self, data: NDArray[np.uint8], table: _Numbers, ends: _Numbers, begins: _Numbers) -> None:
        """Bundle k ends before message `ends[k]`, and its data begin at `begins[k]`.

        `table` has the tables of the bundles, one after the other; positions count from where a bundle's
        data begin.
        """
        self.data = data
        self.table = table
        self.ends = ends
        self.begins = begins

    def __len__(self) -> int:
        return len(self.ends)

    @property
    def messages(self) -> int:
        """How many there are altogether."""
        count: int = self.table.shape[1]
        return count

    def bundle(self, number: int) -> Bundle:
        """Return one bundle, with its own memory: if it waits long, it must not keep that of the others."""
        first = int(self.ends[number - 1]) if number else 0
        data_end = int(self.begins[number + 1]) if number + 1 < len(self) else self.data.size
        return Bundle(
            self.data[int(self.begins[number]) : data_end].copy(),
            self.table[:, first : int(self.ends[number])].copy(),
            {},
        )
