"""Receive the event streams of all sources in one thread and hand them over in lists."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import zmq

from connectors.bundle import Bundle, Frames
from connectors.connections import Connections
from connectors.framing import SEQUENCE_BYTES, SEQUENCE_HEAD, split_messages
from connectors.listening import Listening, Peer, receive_by_topic
from connectors.ready_sockets import ReadySockets
from connectors.source import SourceKey
from connectors.sub_sockets import SOCKET_MESSAGES, high_water_mark, new_sub_socket

MAX_SOCKETS = 16_384
TURN_MESSAGES = 512
"""Messages taken from one socket before the next gets its turn."""
TURN_BYTES = 4 << 20
"""Likewise in payload bytes."""
PAUSE_MILLISECONDS = 2
"""Rest after a turn that emptied the sockets: a turn costs the same for one message as for hundreds."""
BEHIND_SECONDS = 2.5
"""Sockets that were not all found empty for so long hold more than is taken: a look comes each second."""
LOOK_SECONDS = 1.0
"""Which sockets are connected is looked up this often."""
MESSAGE_OVERHEAD_BYTES = 200
"""What a waiting message takes besides its payload."""

if TYPE_CHECKING:
    from connectors.receiver import Receiver

_Socket = zmq.Socket[bytes]
Key = SourceKey | Peer
"""A source that has a socket of its own, or one of those that connect to a socket of ours."""


@dataclass(frozen=True, slots=True)
class Received:
    """Messages of one source, in order."""

    source: Key
    messages: Bundle
    received_at: float
    """Clock of the subscriber, seconds since the epoch, when they were taken from the socket."""
    size: int
    """Bytes they count against the bound of the hand-over."""
    last: bool = False
    """True when the source was removed: nothing of it comes after this."""


@dataclass(frozen=True, slots=True)
class _Add:
    source: SourceKey | Listening
    endpoint: str
    topic: str = ""


@dataclass(frozen=True, slots=True)
class _Remove:
    source: SourceKey


class EndpointRefused(Exception):
    """ZMQ cannot use an endpoint."""

    def __init__(self, source: SourceKey | Listening, endpoint: str, reason: str) -> None:
        super().__init__(source, endpoint, reason)
        self.source = source
        self.endpoint = endpoint
        self.reason = reason

    def __str__(self) -> str:
        if isinstance(self.source, Listening):
            return f"cannot listen on {self.endpoint}: {self.reason}; correct the endpoint"
        replica, rank = self.source
        return f"cannot subscribe to {self.endpoint} of {replica}/{rank}: {self.reason}; correct the endpoint"


class Subscriber:
    """All SUB sockets, owned by one thread.

    All methods are for the event loop that called `start`. Beyond
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
        self._connections: Connections[Key] = Connections(clock)
        self._commands: deque[_Add | _Remove] = deque()
        self._arrived: deque[Received] = deque()
        self._lock = threading.Lock()
        self._waiting_bytes = 0
        self._emptied_at = clock()
        self._full = False
        self._receiver: Receiver | None = None
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

    @property
    def behind(self) -> bool:
        """True while messages may wait that nobody has seen: then a source that seems quiet need not be."""
        return self._full or bool(self._arrived) or self._clock() - self._emptied_at > BEHIND_SECONDS

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._some = asyncio.Event()
        self._thread.start()

    def receive_with(self, receiver: Receiver) -> None:
        """Receive by compiled code from now on; the receiver is the subscriber's alone."""
        self._receiver = receiver

    def add(self, source: SourceKey, endpoint: str, topic: str = "") -> None:
        """Subscribe; ZMQ connects and reconnects by itself."""
        self._command(_Add(source, endpoint, topic))

    def listen(self, listening: Listening, endpoint: str) -> None:
        """Bind, so that engines can connect; their messages come with a `Peer` as source."""
        self._command(_Add(listening, endpoint))

    def remove(self, source: SourceKey) -> None:
        """Take what the socket has, then close it; `receive` returns a last, empty `Received` of it."""
        self._command(_Remove(source))

    def connected_since(self, source: Key) -> float | None:
        """Return the time since when a source is connected, at most LOOK_SECONDS late; None if it is not.

        A peer is connected while the connection that its last message came through is.
        """
        return self._connections.since(source)

    def connected(self, source: Key) -> bool:
        return self._connections.since(source) is not None

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
        sockets: dict[_Socket, SourceKey | Listening] = {}
        ready = ReadySockets()
        try:
            self._serve(sockets, ready)
        except BaseException as error:
            self._failure = error
        finally:
            ready.close()
            for socket in sockets:
                self._connections.forget(socket)
                socket.close(0)
            self._woken.close(0)
            self._ended = True
            self._tell()

    def _serve(self, sockets: dict[_Socket, SourceKey | Listening], ready: ReadySockets) -> None:
        commands = zmq.Poller()
        commands.register(self._woken, zmq.POLLIN)
        ready.add(self._woken)
        rested = True
        look_at = time.monotonic() + LOOK_SECONDS
        while not self._stopping:
            seconds = max(0.0, look_at - time.monotonic())
            if self._full:
                readable = [self._woken] if commands.poll(int(seconds * 1000)) else []
            elif rested:
                readable = ready.wait(seconds)
                if not readable:
                    self._emptied_at = self._clock()
            else:
                readable = [self._woken] if commands.poll(PAUSE_MILLISECONDS) else []
                rested = True
            if self._woken in readable:
                self._obey(sockets, ready)
                readable = [socket for socket in readable if socket in sockets]
            if readable:
                rested = self._turn(sockets, ready, readable)
                if not rested:
                    self._emptied_at = self._clock()
            if time.monotonic() >= look_at:
                self._connections.look()
                look_at = time.monotonic() + LOOK_SECONDS
        deadline = time.monotonic() + self._stop_seconds
        while time.monotonic() < deadline:
            if self._full:
                time.sleep(PAUSE_MILLISECONDS / 1000)
            elif readable := [socket for socket in ready.wait(0) if socket in sockets]:
                self._turn(sockets, ready, readable)
            else:
                break

    def _obey(self, sockets: dict[_Socket, SourceKey | Listening], ready: ReadySockets) -> None:
        with contextlib.suppress(zmq.Again):
            while True:
                self._woken.recv(zmq.NOBLOCK)
        ready.served(self._woken, emptied=True)
        before = high_water_mark(len(sockets))
        while self._commands:
            command = self._commands.popleft()
            if isinstance(command, _Add):
                try:
                    socket = self._opened(command)
                except zmq.ZMQError as error:
                    refusal = EndpointRefused(command.source, command.endpoint, error.strerror)
                    if isinstance(command.source, Listening):
                        raise refusal from error
                    self._loop.call_soon_threadsafe(self._refused, refusal)
                else:
                    sockets[socket] = command.source
                    ready.add(socket)
            else:
                for socket in [socket for socket, source in sockets.items() if source == command.source]:
                    self._close(socket, command.source, ready)
                    del sockets[socket]
                self._arrived.append(Received(command.source, Bundle.of(()), self._clock(), 0, last=True))
                self._tell()
        mark = high_water_mark(len(sockets))
        if mark != before:
            for socket in sockets:
                socket.setsockopt(zmq.RCVHWM, mark)

    def _opened(self, command: _Add) -> _Socket:
        socket = new_sub_socket(self._context, command.endpoint, command.topic)
        try:
            if isinstance(command.source, Listening):
                self._connections.listen(socket)
                socket.bind(command.endpoint)
            else:
                self._connections.watch(socket, command.source)
                socket.connect(command.endpoint)
        except zmq.ZMQError:
            self._connections.forget(socket)
            socket.close(0)
            raise
        return socket

    def _close(self, socket: _Socket, source: SourceKey, ready: ReadySockets) -> None:
        """Take what a socket holds, which its high-water mark bounds, then close it."""
        for _ in range(1 + 2 * SOCKET_MESSAGES // TURN_MESSAGES):
            if self._take(socket, source, self._clock()):
                break
        ready.remove(socket)
        self._connections.forget(socket)
        socket.close(0)

    def _turn(
        self,
        sockets: dict[_Socket, SourceKey | Listening],
        ready: ReadySockets,
        readable: list[_Socket],
    ) -> bool:
        """Take a bounded number from each readable socket; True when there is more to take."""
        more = False
        now = self._clock()
        for socket in readable:
            if self._full:
                more = True
                break
            emptied = self._take(socket, sockets[socket], now)
            ready.served(socket, emptied=emptied)
            more = more or not emptied
        self._tell()
        return more

    def _take(self, socket: _Socket, source: SourceKey | Listening, now: float) -> bool:
        """Hand over what a socket has, up to the bounds of a turn; True when it was emptied."""
        if isinstance(source, Listening):
            return self._take_by_topic(socket, source, now)
        if self._receiver is not None:
            bundle, emptied = self._receiver.take(socket)
            self._hand_over(source, bundle, bundle.size, now)
            return emptied
        messages, size = _drain(socket)
        self._hand_over(source, Bundle.of(messages), size, now)
        return len(messages) < TURN_MESSAGES and size < TURN_BYTES

    def _take_by_topic(self, socket: _Socket, listening: Listening, now: float) -> bool:
        heard, emptied = receive_by_topic(socket, TURN_MESSAGES, TURN_BYTES)
        for topic, part in heard.items():
            peer = Peer(listening, topic)
            self._connections.heard(socket, part.descriptor, peer)
            self._hand_over(peer, Bundle.of(part.messages), part.size, now)
        return emptied

    def _hand_over(self, source: Key, messages: Bundle, size: int, now: float) -> None:
        if not messages:
            return
        taken = size + MESSAGE_OVERHEAD_BYTES * len(messages)
        self._arrived.append(Received(source, messages, now, taken))
        with self._lock:
            self._waiting_bytes += taken
            self._full = self._waiting_bytes >= self._bound

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
