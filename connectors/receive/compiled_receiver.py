"""Receive messages into memory by compiled code that calls libzmq itself.

pyzmq makes an object of each frame; with three frames a message that costs more than all of decoding.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import llvmlite.binding
import numpy as np
import zmq
import zmq.backend.cython._zmq
from numba import types
from numpy.typing import NDArray

from connectors.frames.bundle import (
    MAX_SEQUENCE,
    MESSAGE_END,
    MESSAGE_SEQ,
    MESSAGE_START,
    Bundle,
    Bundles,
    Frames,
)
from connectors.process.compiled import compiled_nogil
from connectors.receive.received import MESSAGE_OVERHEAD_BYTES

_Numbers = NDArray[np.int64]

_ARENA_BYTES = 8 << 20
_TURNS = 4
"""Turns of the largest size that one call has room for; more where sockets have little."""
_MESSAGE_BYTES = 64
"""Size of libzmq's zmq_msg_t, part of its binary interface."""
_KEPT_FRAMES = 4
"""Most frames kept of a message: enough to see that one without exactly three is malformed."""
_MAX_ODD = 64
"""Malformed messages after which a turn ends."""

# The state of a call: what was taken in all turns, the message that is being received, and the present turn:
# its socket, and what was taken before it.
_USED, _MESSAGES, _ODD, _FRAMES, _PENDING, _SOCKET, _USED_BEFORE, _MESSAGES_BEFORE, _ODD_BEFORE = range(9)
_STATE = 9
# What was taken in all turns up to the end of each, and how it ended.
_TURN_USED, _TURN_MESSAGES, _TURN_ODD, _TURN_OUTCOME = range(4)
_TURN = 4
# Columns of the table of malformed messages; the bounds of the kept frames follow.
_INDEX, _COUNT, _BOUNDS = range(3)

_EMPTIED, _ENOUGH, _NO_ROOM = range(3)

_FUNCTIONS = ("zmq_msg_init", "zmq_msg_recv", "zmq_msg_size", "zmq_msg_data", "zmq_msg_more", "zmq_msg_close")
_External: Any = types.ExternalFunction
_init = _External("zmq_msg_init", types.int32(types.intp))
_receive = _External("zmq_msg_recv", types.int32(types.intp, types.intp, types.int32))
_size = _External("zmq_msg_size", types.intp(types.intp))
_data = _External("zmq_msg_data", types.intp(types.intp))
_more = _External("zmq_msg_more", types.int32(types.intp))
_close = _External("zmq_msg_close", types.int32(types.intp))
_copy = _External("memcpy", types.intp(types.intp, types.intp, types.intp))

_DONTWAIT = 1


_NOTHING = Bundle.of(())


class LibzmqHidden(Exception):
    """pyzmq was built so that the functions of its libzmq cannot be found."""


@compiled_nogil
def _take(
    socket: int,
    message: NDArray[np.uint8],
    arena: NDArray[np.uint8],
    state: _Numbers,
    table: _Numbers,
    bounds: _Numbers,
    odd: _Numbers,
    max_messages: int,
    max_bytes: int,
) -> int:
    """Go on with a turn: receive into `arena` until there is nothing, enough, or no room for a frame.

    `bounds` has the start and end of the kept frames of the message that is being received. Positions in
    tables count from the turn's first byte and message.
    """
    handle = message.ctypes.data
    memory = arena.ctypes.data
    begin = state[_USED_BEFORE]
    while True:
        if state[_FRAMES] == 0 and (
            state[_MESSAGES] - state[_MESSAGES_BEFORE] >= max_messages
            or state[_USED] - begin >= max_bytes
            or state[_ODD] - state[_ODD_BEFORE] >= _MAX_ODD
        ):
            return _ENOUGH
        if state[_PENDING] == 0:
            if _receive(handle, socket, _DONTWAIT) < 0:
                return _EMPTIED
            state[_PENDING] = 1
        frame = state[_FRAMES]
        if frame < _KEPT_FRAMES:
            size = _size(handle)
            start = state[_USED]
            if len(arena) - start < size:
                return _NO_ROOM
            _copy(memory + start, _data(handle), size)
            bounds[2 * frame] = start - begin
            bounds[2 * frame + 1] = start + size - begin
            state[_USED] = start + size
            state[_FRAMES] = frame + 1
        state[_PENDING] = 0
        if _more(handle) != 0:
            continue
        column = state[_MESSAGES]
        seq = np.int64(-1)
        if state[_FRAMES] == 3 and bounds[3] - bounds[2] == 8:
            seq = 0
            for i in range(begin + bounds[2], begin + bounds[3]):
                # Cannot overflow: it stops growing where it is too large anyway.
                seq = MAX_SEQUENCE if seq >= MAX_SEQUENCE else seq << 8 | np.int64(arena[i])
            if seq >= MAX_SEQUENCE:
                seq = -1
        if seq >= 0:
            table[MESSAGE_START, column] = bounds[4]
            table[MESSAGE_END, column] = bounds[5]
        else:
            table[MESSAGE_START, column] = table[MESSAGE_END, column] = 0
            wrong = odd[state[_ODD]]
            wrong[_INDEX] = column - state[_MESSAGES_BEFORE]
            wrong[_COUNT] = state[_FRAMES]
            for i in range(2 * state[_FRAMES]):
                wrong[_BOUNDS + i] = bounds[i]
            state[_ODD] += 1
        table[MESSAGE_SEQ, column] = seq
        state[_MESSAGES] += 1
        state[_FRAMES] = 0


@compiled_nogil
def _take_all(
    sockets: _Numbers,
    message: NDArray[np.uint8],
    arena: NDArray[np.uint8],
    state: _Numbers,
    table: _Numbers,
    bounds: _Numbers,
    odd: _Numbers,
    turns: _Numbers,
    max_messages: int,
    max_bytes: int,
    room: int,
    overhead: int,
) -> int:
    """Go on with a turn of each socket; row i of `turns` is that of socket i.

    Stops before the last socket if another turn might be more than the tables or `room` bytes hold, with
    `overhead` counted for each message. Returns _NO_ROOM if `arena` has no room for a frame.
    """
    while state[_SOCKET] < len(sockets):
        number = state[_SOCKET]
        outcome = _take(sockets[number], message, arena, state, table, bounds, odd, max_messages, max_bytes)
        if outcome == _NO_ROOM:
            return outcome
        used, messages = state[_USED], state[_MESSAGES]
        turns[number, _TURN_USED] = state[_USED_BEFORE] = used
        turns[number, _TURN_MESSAGES] = state[_MESSAGES_BEFORE] = messages
        turns[number, _TURN_ODD] = state[_ODD_BEFORE] = state[_ODD]
        turns[number, _TURN_OUTCOME] = outcome
        state[_SOCKET] = number + 1
        if (
            used >= max_bytes
            or used + overhead * messages >= room
            or messages + max_messages > table.shape[1]
            or state[_ODD] + _MAX_ODD > len(odd)
        ):
            break
    return _ENOUGH


@compiled_nogil
def _begin(message: NDArray[np.uint8]) -> int:
    return int(_init(message.ctypes.data))


@compiled_nogil
def _end(message: NDArray[np.uint8]) -> int:
    return int(_close(message.ctypes.data))


class Receiver:
    """Takes messages from SUB sockets, all of which belong to the thread that calls it."""

    def __init__(self, *, messages: int, size: int) -> None:
        """A turn takes `messages` at most, and about `size` bytes. Raises LibzmqHidden."""
        make_known()
        self._max_messages = messages
        self._max_bytes = size
        self._arena = np.empty(_ARENA_BYTES, np.uint8)
        self._message = np.zeros(_MESSAGE_BYTES, np.uint8)
        self._table = np.zeros((3, _TURNS * messages), np.int64)
        self._bounds = np.zeros(2 * _KEPT_FRAMES, np.int64)
        self._odd = np.zeros((_TURNS * _MAX_ODD, _BOUNDS + 2 * _KEPT_FRAMES), np.int64)

    def take(self, sockets: Sequence[zmq.Socket[bytes]], room: int) -> Taken:
        """Take what is there, with one turn for each of the first sockets.

        Those are as many as fit into one call and `room` bytes of the hand-over, but at least one. The result
        is valid until the next call.
        """
        state = np.zeros(_STATE, np.int64)
        turns = np.empty((len(sockets), _TURN), np.int64)
        handles = np.array([socket.underlying for socket in sockets], np.int64)
        arena = self._arena
        _begin(self._message)
        while True:
            outcome = _take_all(
                handles,
                self._message,
                arena,
                state,
                self._table,
                self._bounds,
                self._odd,
                turns,
                self._max_messages,
                self._max_bytes,
                room,
                MESSAGE_OVERHEAD_BYTES,
            )
            if outcome != _NO_ROOM:
                break
            larger = np.empty(2 * len(arena), np.uint8)
            larger[: state[_USED]] = arena[: state[_USED]]
            arena = larger
        _end(self._message)
        return Taken(arena, self._table, self._odd, turns[: state[_SOCKET]])


class Taken:
    """What a call has taken from each socket, in their order."""

    def __init__(self, arena: NDArray[np.uint8], table: _Numbers, odd: _Numbers, turns: _Numbers) -> None:
        self._arena = arena
        self._table = table
        self._odd = odd
        self._turns = np.zeros((len(turns) + 1, _TURN), np.int64)
        """Row i is what was taken before the turn of socket i."""
        self._turns[1:] = turns
        self.emptied: list[bool] = (turns[:, _TURN_OUTCOME] == _EMPTIED).tolist()
        """For each socket, whether nothing was left in it."""

    def ranges(self, messages: int, each: int, size: int) -> list[tuple[int, int]]:
        """Divide the sockets into ranges (first, end exclusive) that had at most `size` bytes together.

        A socket with more than `each` bytes or `messages` messages, or with a malformed one, is on its own.
        """
        count = len(self.emptied)
        turns = np.diff(self._turns, axis=0)
        alone = (turns[:, _TURN_MESSAGES] > messages) | (turns[:, _TURN_ODD] > 0)
        alone |= turns[:, _TURN_USED] > each
        if self._turns[-1, _TURN_USED] <= size and not alone.any():
            return [(0, count)]
        used = self._turns[:, _TURN_USED].tolist()
        is_alone = alone.tolist()
        ranges = []
        first = 0
        for number in range(1, count):
            apart = is_alone[number] or is_alone[number - 1]
            if apart or used[number + 1] - used[first] > size:
                ranges.append((first, number))
                first = number
        return [*ranges, (first, count)]

    def bundle(self, number: int) -> Bundle:
        """Return the messages of one socket."""
        (used, messages, wrong, _), (used_then, messages_then, wrong_then, _) = self._turns[
            number : number + 2
        ].tolist()
        if messages_then == messages:
            return _NOTHING
        # Each has its own memory: a bundle that waits long must not keep that of the others.
        data = self._arena[used:used_then].copy()
        odd = self._odd[wrong:wrong_then] if wrong_then > wrong else ()
        return Bundle(
            data,
            self._table[:, messages:messages_then].copy(),
            {int(row[_INDEX]): _frames(data, row) for row in odd},
        )

    def bundles(self, first: int, end: int) -> tuple[list[int], Bundles]:
        """Return which sockets of a range had messages, and these messages; none may be malformed."""
        turns = self._turns[first : end + 1]
        used, messages = turns[:, _TURN_USED], turns[:, _TURN_MESSAGES]
        numbers = np.flatnonzero(messages[1:] > messages[:-1])
        bundles = Bundles(
            self._arena[used[0] : used[-1]].copy(),
            self._table[:, messages[0] : messages[-1]].copy(),
            messages[1:][numbers] - messages[0],
            used[numbers] - used[0],
        )
        return (numbers + first).tolist(), bundles


def _frames(data: NDArray[np.uint8], row: _Numbers) -> Frames:
    bounds = row[_BOUNDS : _BOUNDS + 2 * int(row[_COUNT])].tolist()
    return [data[start:end].tobytes() for start, end in zip(bounds[::2], bounds[1::2], strict=True)]


def make_known() -> None:
    """Tell the compiler where libzmq's functions are. Raises LibzmqHidden."""
    library = ctypes.CDLL(zmq.backend.cython._zmq.__file__)  # finds those of the libraries it is linked to
    for name in _FUNCTIONS:
        try:
            function = getattr(library, name)
        except AttributeError:
            raise LibzmqHidden(name) from None
        llvmlite.binding.add_symbol(name, ctypes.cast(function, ctypes.c_void_p).value)


def warm_up() -> None:
    """Compile, or load what was compiled. Raises LibzmqHidden."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    with context.socket(zmq.SUB) as socket:
        Receiver(messages=1, size=1).take([socket], 1)
    context.term()
