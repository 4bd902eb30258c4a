"""Receive messages into memory by compiled code that calls libzmq itself.

pyzmq makes an object of each frame; with three frames a message that costs more than all of decoding.
"""

from __future__ import annotations

import ctypes
from typing import Any

import llvmlite.binding
import numpy as np
import zmq
import zmq.backend.cython._zmq
from numba import types
from numpy.typing import NDArray

from connectors.frames.bundle import Bundle
from connectors.frames.framing import MAX_SEQUENCE, Frames
from connectors.process.compiled import compiled_nogil

_Numbers = NDArray[np.int64]

_ARENA_BYTES = 8 << 20
_MESSAGE_BYTES = 64
"""Size of libzmq's zmq_msg_t, part of its binary interface."""
_KEPT_FRAMES = 4
"""Frames kept of a message that has not three: enough to see that it is wrong."""
_MAX_ODD = 64
"""Wrong messages after which a turn ends."""

# The state of a turn.
_USED, _MESSAGES, _FRAMES, _PENDING, _ODD, _BYTES = range(6)
_STATE = 6
# Columns of the table of messages, and of that of wrong ones, where the bounds of the kept frames follow.
_START, _END, _SEQ = range(3)
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
    max_bytes: int,
) -> int:
    """Go on with a turn: receive into `arena` until there is nothing, enough, or no room for a frame.

    `bounds` has the start and end of the kept frames of the message that is being received.
    """
    handle = message.ctypes.data
    memory = arena.ctypes.data
    while True:
        if state[_FRAMES] == 0 and (
            state[_MESSAGES] >= len(table) or state[_BYTES] >= max_bytes or state[_ODD] >= len(odd)
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
            bounds[2 * frame] = start
            bounds[2 * frame + 1] = start + size
            state[_USED] = start + size
            state[_BYTES] += size
            state[_FRAMES] = frame + 1
        state[_PENDING] = 0
        if _more(handle) != 0:
            continue
        row = table[state[_MESSAGES]]
        seq = np.int64(-1)
        if state[_FRAMES] == 3 and bounds[3] - bounds[2] == 8:
            seq = 0
            for i in range(bounds[2], bounds[3]):
                # Cannot overflow: it stops growing where it is too large anyway.
                seq = MAX_SEQUENCE if seq >= MAX_SEQUENCE else seq << 8 | np.int64(arena[i])
            if seq >= MAX_SEQUENCE:
                seq = -1
        if seq >= 0:
            row[_START] = bounds[4]
            row[_END] = bounds[5]
        else:
            row[_START] = row[_END] = 0
            wrong = odd[state[_ODD]]
            wrong[_INDEX] = state[_MESSAGES]
            wrong[_COUNT] = state[_FRAMES]
            for i in range(2 * state[_FRAMES]):
                wrong[_BOUNDS + i] = bounds[i]
            state[_ODD] += 1
        row[_SEQ] = seq
        state[_MESSAGES] += 1
        state[_FRAMES] = 0


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
        self._max_bytes = size
        self._arena = np.empty(_ARENA_BYTES, np.uint8)
        self._message = np.zeros(_MESSAGE_BYTES, np.uint8)
        self._table = np.zeros((messages, 3), np.int64)
        self._bounds = np.zeros(2 * _KEPT_FRAMES, np.int64)
        self._odd = np.zeros((_MAX_ODD, _BOUNDS + 2 * _KEPT_FRAMES), np.int64)

    def take(self, socket: zmq.Socket[bytes]) -> tuple[Bundle, bool]:
        """Take what is there, up to the bounds of a turn: (messages, whether the socket was emptied)."""
        state = np.zeros(_STATE, np.int64)
        arena = self._arena
        _begin(self._message)
        while True:
            outcome = _take(
                socket.underlying,
                self._message,
                arena,
                state,
                self._table,
                self._bounds,
                self._odd,
                self._max_bytes,
            )
            if outcome != _NO_ROOM:
                break
            larger = np.empty(2 * len(arena), np.uint8)
            larger[: state[_USED]] = arena[: state[_USED]]
            arena = larger
        _end(self._message)
        data = arena[: state[_USED]].copy()
        odd = {int(row[_INDEX]): _frames(data, row) for row in self._odd[: state[_ODD]]}
        table = self._table[: state[_MESSAGES]].T.copy()
        return Bundle(data, table, odd), outcome == _EMPTIED


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
        Receiver(messages=1, size=1).take(socket)
    context.term()
