"""Receive the event streams of all sources in one thread and hand them over in lists."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import zmq

from connectors.framing import SEQUENCE_BYTES, SEQUENCE_HEAD, split_messages
from connectors.source import Frames, SourceKey

RECEIVE_HIGH_WATER_MARK = 100_000
"""Messages that a socket holds for us while we do not read; the engines' own default for sending."""
RECONNECT_MILLISECONDS = 100
RECONNECT_MAX_MILLISECONDS = 5_000
HANDSHAKE_MILLISECONDS = 10_000
KEEPALIVE_IDLE_SECONDS = 30
KEEPALIVE_INTERVAL_SECONDS = 10
KEEPALIVE_PROBES = 3
MAX_SOCKETS = 16_384
TURN_MESSAGES = 512
"""Messages taken from one socket before the next gets its turn."""
TURN_BYTES = 4 << 20
"""Likewise in payload bytes."""
PAUSE_MILLISECONDS = 2
"""Rest after a turn that emptied the sockets: a turn costs the same for one message as for hundreds."""
REMOVAL_SECONDS = 1.0
"""Bound of taking what is left on a socket before it is closed."""
MESSAGE_OVERHEAD_BYTES = 200
"""What a waiting message takes besides its payload."""

_Socket = zmq.Socket[bytes]


@dataclass(frozen=True, slots=True)
class Received:
    """Messages of one source, in order."""

    source: SourceKey
    messages: list[Frames]
    received_at: float
    """Clock of the subscriber, seconds since the epoch, when they were taken from the socket."""
    size: int
    """Bytes they count against the bound of the hand-over."""


@dataclass(frozen=True, slots=True)
class _Add:
    source: SourceKey
    endpoint: str
    topic: str


@dataclass(frozen=True, slots=True)
class _Remove:
    source: SourceKey


class EndpointRefused(Exception):
    """ZMQ cannot use an endpoint."""

    def __init__(self, source: SourceKey, endpoint: str, reason: str) -> None:
        super().__init__(source, endpoint, reason)
        self.source = source
        self.endpoint = endpoint
        self.reason = reason

    def __str__(self) -> str:
        replica, rank = self.source
        return f"cannot subscribe to {self.endpoint} of {replica}/{rank}: {self.reason}; correct the endpoint"


class Subscriber:
    """All SUB sockets, owned by one thread.

    `add`, `remove`, `receive`, `release` and `stop` are for the event loop that called `start`. Beyond
    `hand_over_bytes` of messages handed over and not released the sockets are left unread: then ZMQ's
    queues fill, the engine drops, and the sequence numbers show it.
    """

    def __init__(
        self,
        *,
        hand_over_bytes: int,
        clock: Callable[[], float] = time.time,
        refused: Callable[[EndpointRefused], None],
    ) -> None:
        """`refused` is called in the event loop for an endpoint that cannot be used."""
        self._bound = hand_over_bytes
        self._clock = clock
        self._refused = refused
        self._context: zmq.Context[_Socket] = zmq.Context()
        self._context.set(zmq.MAX_SOCKETS, MAX_SOCKETS)
        self._commands: deque[_Add | _Remove] = deque()
        self._arrived: deque[Received] = deque()
        self._lock = threading.Lock()
        self._waiting_bytes = 0
        self._full = False
        self._stopping = False
        self._stop_seconds = 0.0
        self._ended = False
        self._failure: BaseException | None = None
        self._wake_up = self._context.socket(zmq.PAIR)
        self._woken = self._context.socket(zmq.PAIR)
        address = "inproc://subscriber"
        self._woken.bind(address)
        self._wake_up.connect(address)
        self._thread = threading.Thread(target=self._run, name="subscriber", daemon=True)

    @property
    def waiting_bytes(self) -> int:
        """Bytes handed over and not yet released."""
        return self._waiting_bytes

    @property
    def waiting_messages(self) -> int:
        """Messages that `receive` has not returned yet."""
        return sum(len(received.messages) for received in self._arrived)

    @property
    def full(self) -> bool:
        """True while the sockets are left unread."""
        return self._full

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._some = asyncio.Event()
        self._thread.start()

    def add(self, source: SourceKey, endpoint: str, topic: str = "") -> None:
        """Subscribe; ZMQ connects and reconnects by itself."""
        self._command(_Add(source, endpoint, topic))

    def remove(self, source: SourceKey) -> None:
        """Take what the socket has, then close it."""
        self._command(_Remove(source))

    async def receive(self) -> Received | None:
        """Wait for messages; None when the subscriber has stopped and everything was handed over.

        Raises what ended the thread before its time.
        """
        while not self._arrived:
            if self._ended:
                if self._failure is not None:
                    raise self._failure
                return None
            self._some.clear()
            await self._some.wait()
        return self._arrived.popleft()

    def release(self, size: int) -> None:
        """Give back the bytes of messages that were dealt with."""
        with self._lock:
            self._waiting_bytes -= size
            wake = self._full and self._waiting_bytes <= self._bound // 2
            if wake:
                self._full = False
        if wake:
            self._wake()

    def stop(self, seconds: float) -> None:
        """Take what the sockets hold, for `seconds` at most, then close them and end the thread."""
        self._stop_seconds = seconds
        self._stopping = True
        self._wake()

    async def join(self, seconds: float) -> None:
        """Wait for the thread's end and free the sockets."""
        await asyncio.to_thread(self._thread.join, seconds)
        if not self._thread.is_alive():
            self._wake_up.close(0)
            self._context.term()

    def _command(self, command: _Add | _Remove) -> None:
        self._commands.append(command)
        self._wake()

    def _wake(self) -> None:
        with contextlib.suppress(zmq.Again):  # so many wake-ups wait that one more says nothing
            self._wake_up.send(b"", zmq.NOBLOCK)

    # From here on in the thread.

    def _run(self) -> None:
        sockets: dict[_Socket, SourceKey] = {}
        try:
            self._serve(sockets)
        except BaseException as error:
            self._failure = error
        finally:
            for socket in sockets:
                socket.close(0)
            self._woken.close(0)
            self._ended = True
            self._tell()

    def _serve(self, sockets: dict[_Socket, SourceKey]) -> None:
        everything = zmq.Poller()
        everything.register(self._woken, zmq.POLLIN)
        commands_only = zmq.Poller()
        commands_only.register(self._woken, zmq.POLLIN)
        rested = True
        while not self._stopping:
            if self._full:
                readable = dict(commands_only.poll())
            elif rested:
                readable = dict(everything.poll())
            else:
                readable = dict(commands_only.poll(PAUSE_MILLISECONDS))
                rested = True
            if self._woken in readable:
                self._obey(sockets, everything)
                del readable[self._woken]
            if readable:
                rested = self._turn(sockets, list(readable))
        self._empty(sockets, time.monotonic() + self._stop_seconds)

    def _obey(self, sockets: dict[_Socket, SourceKey], poller: zmq.Poller) -> None:
        with contextlib.suppress(zmq.Again):
            while True:
                self._woken.recv(zmq.NOBLOCK)
        while self._commands:
            command = self._commands.popleft()
            if isinstance(command, _Add):
                try:
                    socket = self._subscribed(command)
                except zmq.ZMQError as error:
                    refusal = EndpointRefused(command.source, command.endpoint, error.strerror)
                    self._loop.call_soon_threadsafe(self._refused, refusal)
                else:
                    sockets[socket] = command.source
                    poller.register(socket, zmq.POLLIN)
            else:
                for socket in [socket for socket, source in sockets.items() if source == command.source]:
                    self._empty({socket: command.source}, time.monotonic() + REMOVAL_SECONDS)
                    poller.unregister(socket)
                    del sockets[socket]
                    socket.close(0)

    def _subscribed(self, command: _Add) -> _Socket:
        socket = self._context.socket(zmq.SUB)
        try:
            socket.setsockopt(zmq.RCVHWM, RECEIVE_HIGH_WATER_MARK)
            socket.setsockopt(zmq.LINGER, 0)
            socket.setsockopt(zmq.RECONNECT_IVL, RECONNECT_MILLISECONDS)
            socket.setsockopt(zmq.RECONNECT_IVL_MAX, RECONNECT_MAX_MILLISECONDS)
            socket.setsockopt(zmq.HANDSHAKE_IVL, HANDSHAKE_MILLISECONDS)
            socket.setsockopt(zmq.TCP_KEEPALIVE, 1)
            socket.setsockopt(zmq.TCP_KEEPALIVE_IDLE, KEEPALIVE_IDLE_SECONDS)
            socket.setsockopt(zmq.TCP_KEEPALIVE_INTVL, KEEPALIVE_INTERVAL_SECONDS)
            socket.setsockopt(zmq.TCP_KEEPALIVE_CNT, KEEPALIVE_PROBES)
            socket.setsockopt(zmq.IPV6, int("[" in command.endpoint))
            socket.setsockopt(zmq.SUBSCRIBE, command.topic.encode())
            socket.connect(command.endpoint)
        except zmq.ZMQError:
            socket.close(0)
            raise
        return socket

    def _turn(self, sockets: dict[_Socket, SourceKey], readable: list[_Socket]) -> bool:
        """Take a bounded number from each readable socket; True when one of them has more."""
        more = False
        size = 0
        now = self._clock()
        for socket in readable:
            messages, payload_bytes = _drain(socket)
            more = more or len(messages) >= TURN_MESSAGES or payload_bytes >= TURN_BYTES
            if messages:
                taken = payload_bytes + MESSAGE_OVERHEAD_BYTES * len(messages)
                self._arrived.append(Received(sockets[socket], messages, now, taken))
                size += taken
        if size:
            with self._lock:
                self._waiting_bytes += size
                self._full = self._waiting_bytes >= self._bound
            self._tell()
        return more

    def _empty(self, sockets: dict[_Socket, SourceKey], deadline: float) -> None:
        """Take turns until nothing is there; a stream that never pauses ends at the deadline."""
        poller = zmq.Poller()
        for socket in sockets:
            poller.register(socket, zmq.POLLIN)
        while time.monotonic() < deadline:
            if self._full:
                time.sleep(PAUSE_MILLISECONDS / 1000)
            elif readable := dict(poller.poll(0)):
                self._turn(sockets, list(readable))
            else:
                break

    def _tell(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is there to take more
            self._loop.call_soon_threadsafe(self._some.set)


def _drain(socket: _Socket) -> tuple[list[Frames], int]:
    """Take what is there, up to TURN_MESSAGES and about TURN_BYTES: (messages, payload bytes)."""
    messages: list[Frames] = []
    receive = socket.recv
    now = zmq.NOBLOCK
    size = 0
    begun: list[bytes] = []
    try:
        while size < TURN_BYTES and len(messages) < TURN_MESSAGES:
            begun = []
            first = receive(now)
            begun = [first]
            second = receive(now)
            begun = [first, second]
            # Only as a frame object it says whether the message goes on.
            third = receive(now, False)
            payload = third.bytes
            if third.more or len(second) != SEQUENCE_BYTES or not second.startswith(SEQUENCE_HEAD):
                frames = [first, second, payload]
                while socket.getsockopt(zmq.RCVMORE):
                    frames.append(receive(now))
                messages += split_messages(frames)
                size += sum(map(len, frames))
                continue
            messages.append((first, second, payload))
            size += len(payload)
    except zmq.Again:
        # A message never comes in parts: where it ends, there were too few frames.
        if begun:
            messages.append(begun)
    return messages, size
