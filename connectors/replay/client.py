"""Ask an engine for a replay, each time over a new DEALER socket, so that a late answer reaches nobody."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

import zmq

from connectors.process.dialling import connect, kinds_of
from connectors.process.stopping import ended
from connectors.replay.protocol import parse_answer, request
from schemas.reasons import ReplayOutcome

RECEIVE_HIGH_WATER_MARK = 4_000
"""Messages that a socket holds. An engine sends its whole buffer at once: what we do not take waits there.
Engines before vLLM 0.33 drop what they cannot send: that leaves a hole, which is asked for again."""
MAX_MESSAGE_BYTES = 256 << 20
"""A larger frame ends the connection, and so the answer."""
CHUNK_MESSAGES = 256
"""Most messages taken before they are dealt with and others get their turn."""
CHUNK_BYTES = 1 << 20
"""Payload bytes after which no more are taken before these are dealt with."""
MAX_ANSWER_MESSAGES = 100_000
"""After so many an answer is over, so that others get their turn. Engines keep 10,000 batches by default."""
WAITS = 12
"""Most time that one answer may be waited for in all, in timeouts: an engine may not trickle for ever."""
MAX_SOCKETS = 4_096

_Socket = zmq.Socket[bytes]
Take = Callable[[list[tuple[int, bytes]]], Awaitable[bool]]
"""Given (sequence number, payload) in the order they came; returns whether more is of use."""


class Replayer:
    """Makes connections for requests. Sockets are made, used and closed in the caller's event loop."""

    def __init__(self, *, timeout_seconds: float) -> None:
        """An answer is over when nothing came for `timeout_seconds`."""
        self._timeout_seconds = timeout_seconds
        self._context: zmq.Context[_Socket] = zmq.Context()
        self._context.set(zmq.MAX_SOCKETS, MAX_SOCKETS)
        self._known: dict[str, bool] = {}
        """By endpoint, whether its last connection was by IPv6."""

    async def connect(self, endpoint: str) -> Connection | None:
        """Return a connection for one request; None if there is none within the timeout.

        Where a name may have IPv4 and IPv6 addresses, both are tried, and next time the one that was first.
        """
        known = self._known.pop(endpoint, None)
        tries: list[tuple[bool, Connection]] = []
        found: Connection | None = None
        try:
            for ipv6 in kinds_of(endpoint) if known is None else (known,):
                with contextlib.suppress(zmq.ZMQError):
                    tries.append((ipv6, Connection(self._connecting(endpoint, ipv6), self._timeout_seconds)))
            number = await _first([connection.ready() for _, connection in tries])
            if number is not None:
                self._known[endpoint], found = tries[number]
        finally:
            for _, connection in tries:
                if connection is not found:
                    connection.close()
        return found

    def close(self) -> None:
        """Free the context; every connection must be closed."""
        self._context.term()

    def _connecting(self, endpoint: str, ipv6: bool) -> _Socket:
        socket = self._context.socket(zmq.DEALER)
        try:
            socket.setsockopt(zmq.LINGER, 0)
            socket.setsockopt(zmq.RCVHWM, RECEIVE_HIGH_WATER_MARK)
            socket.setsockopt(zmq.MAXMSGSIZE, MAX_MESSAGE_BYTES)
            # A request is sent to an engine that is there, or not at all.
            socket.setsockopt(zmq.IMMEDIATE, 1)
            connect(socket, endpoint, ipv6=ipv6)
        except zmq.ZMQError:
            socket.close(0)
            raise
        return socket


class Connection:
    """A socket that is connected to an engine, for one request."""

    def __init__(self, socket: _Socket, timeout_seconds: float) -> None:
        self._socket = socket
        self._timeout_seconds = timeout_seconds

    async def ready(self) -> bool:
        """Wait until a request can be sent; False if it cannot within the timeout."""
        return await self._wait(zmq.POLLOUT)

    async def replay(self, first: int, take: Take) -> ReplayOutcome:
        """Ask for all batches from number `first` on; return how the answer ended.

        Time spent in `take` does not count as waiting for the engine.
        """
        try:
            self._socket.send_multipart(request(first), zmq.NOBLOCK)
        except zmq.Again:
            return "unreachable"
        waited = 0.0
        messages = 0
        while True:
            batches, ended = _received(self._socket)
            messages += len(batches)
            if batches and not await take(batches):
                return "enough"
            if ended:
                return "end"
            if messages >= MAX_ANSWER_MESSAGES:
                return "endless"
            if batches:
                continue
            began = time.monotonic()
            there = await self._wait(zmq.POLLIN)
            waited += time.monotonic() - began
            if not there or waited > WAITS * self._timeout_seconds:
                return "timeout"

    def close(self) -> None:
        self._socket.close(0)

    async def _wait(self, event: int) -> bool:
        """Wait until the socket is ready for an event; False after the timeout."""
        deadline = time.monotonic() + self._timeout_seconds
        while not int(self._socket.getsockopt(zmq.EVENTS)) & event:
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            await _stirred(self._socket, left)
        return True


async def _first(trying: Sequence[Coroutine[Any, Any, bool]]) -> int | None:
    """Return the index of the first one to return True, None if none does; the others are ended."""
    tasks = [asyncio.create_task(one) for one in trying]
    left = {*tasks}
    try:
        while left:
            _, left = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
            for number, task in enumerate(tasks):
                if task.done() and task.result():
                    return number
        return None
    finally:
        await ended(*tasks)


def _received(socket: _Socket) -> tuple[list[tuple[int, bytes]], bool]:
    """Return what has come of an answer, a chunk at most, and whether it ends with that."""
    batches: list[tuple[int, bytes]] = []
    size = 0
    try:
        while size < CHUNK_BYTES and len(batches) < CHUNK_MESSAGES:
            batch = parse_answer(socket.recv_multipart(zmq.NOBLOCK))
            if batch is None:
                return batches, True
            batches.append(batch)
            size += len(batch[1])
    except zmq.Again:
        pass
    return batches, False


async def _stirred(socket: _Socket, seconds: float) -> None:
    """Wait until something may have happened to a socket that was found not to be ready, or for `seconds`."""
    loop = asyncio.get_running_loop()
    stirred = asyncio.Event()
    descriptor = int(socket.getsockopt(zmq.FD))
    loop.add_reader(descriptor, stirred.set)
    try:
        await asyncio.wait_for(stirred.wait(), seconds)
    except asyncio.TimeoutError:
        pass
    finally:
        loop.remove_reader(descriptor)
