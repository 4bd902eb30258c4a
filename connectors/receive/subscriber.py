"""Receive the event streams of all sources in one thread and hand them over in bundles."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import zmq

from connectors.frames.bundle import Bundle
from connectors.order.gathered import SLOT_BATCHES
from connectors.process.binding import listen
from connectors.process.dialling import Dialling
from connectors.receive.emitter import Emitter
from connectors.receive.hand_over import HandOver
from connectors.receive.listening import receive_by_topic
from connectors.receive.monitors import Connections
from connectors.receive.plain_receiver import receive_messages
from connectors.receive.ready_sockets import ReadySockets
from connectors.receive.received import Key, Received, Together
from connectors.receive.sub_sockets import (
    SOCKET_MESSAGES,
    EndpointRefused,
    high_water_mark,
    new_sub_socket,
)
from connectors.sources import Listening, Peer, SourceKey

MAX_SOCKETS = 16_384
TURN_MESSAGES = 512
"""Messages taken from one socket before the next gets its turn."""
TURN_SOCKETS = 256
"""Sockets that may be emptied in one call."""
TURN_BYTES = 4 << 20
"""Payload bytes taken from one socket before the next gets its turn."""
TOGETHER_BYTES = 256 << 10
"""Of several sockets that are handed over together: little enough to need no turns."""
TOGETHER_EACH_BYTES = 16 << 10
"""Of each of them: what is larger has its turn."""
REST_SECONDS = 0.005
"""After a turn that emptied the sockets, at least: a turn costs the same for one message as for hundreds."""
MAX_REST_SECONDS = 0.02
FEW_MESSAGES = 8
"""A socket that has more on average may fill its queue in a longer rest."""
BEHIND_SECONDS = 2.5
"""Sockets that were not all found empty for so long hold more than is taken: a look comes each second."""
REFRESH_SECONDS = 1.0
"""Which sockets are connected is found out this often."""

if TYPE_CHECKING:
    from connectors.receive.compiled_receiver import Receiver

_Socket = zmq.Socket[bytes]


@dataclass(frozen=True, slots=True)
class _Add:
    source: SourceKey | Listening
    endpoint: str
    topic: str = ""
    shared_sequence: bool = False


@dataclass(frozen=True, slots=True)
class _Remove:
    source: SourceKey


@dataclass(frozen=True, slots=True)
class _Pause:
    source: Key


@dataclass(frozen=True, slots=True)
class _GoOn:
    source: Key


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
        rest_seconds: float = REST_SECONDS,
        together: bool = True,
        clock: Callable[[], float] = time.time,
        refused: Callable[[EndpointRefused], None],
    ) -> None:
        """`refused` is called in the event loop for an endpoint that cannot be used.

        Messages may wait for `rest_seconds` in their sockets while these have few. With `together`, the few
        of several sockets are handed over as one.
        """
        self._together_each = TOGETHER_EACH_BYTES if together else 0
        self._rest_seconds = min(max(rest_seconds, REST_SECONDS), MAX_REST_SECONDS)
        self._clock = clock
        self._refused = refused
        self._context: zmq.Context[_Socket] = zmq.Context()
        self._context.set(zmq.MAX_SOCKETS, MAX_SOCKETS)
        self._connections: Connections[Key] = Connections(clock)
        self._commands: deque[_Add | _Remove | _Pause | _GoOn] = deque()
        self._paused: set[Key] = set()
        self._dialling: dict[_Socket, tuple[SourceKey, Dialling]] = {}
        self._emitters: dict[SourceKey, Emitter] = {}
        self._hand_over = HandOver(hand_over_bytes, self._wake)
        self._emptied_at = clock()
        self._receiver: Receiver | None = None
        self._stopping = False
        self._stop_seconds = 0.0
        self._wake_up = self._context.socket(zmq.PAIR)
        self._woken = self._context.socket(zmq.PAIR)
        address = "inproc://subscriber"
        self._woken.bind(address)
        self._wake_up.connect(address)
        self._thread = threading.Thread(target=self._run, name="subscriber", daemon=True)

    @property
    def waiting_bytes(self) -> int:
        """Bytes handed over and not yet released."""
        return self._hand_over.waiting_bytes

    @property
    def waiting_messages(self) -> int:
        """Messages that `receive` has not returned yet."""
        return self._hand_over.waiting_messages

    @property
    def full(self) -> bool:
        """True while the sockets are left unread."""
        return self._hand_over.full

    @property
    def free_bytes(self) -> int:
        """Bytes that can be handed over until the bound is reached."""
        return self._hand_over.free

    @property
    def ended(self) -> bool:
        """Whether nothing more will be handed over."""
        return self._hand_over.ended

    @property
    def behind(self) -> bool:
        """True while messages may wait that nobody has seen: then a source that seems idle need not be."""
        hand_over = self._hand_over
        waiting = hand_over.full or not hand_over.empty
        return waiting or self._clock() - self._emptied_at > BEHIND_SECONDS

    def start(self) -> None:
        self._hand_over.start()
        self._thread.start()

    def receive_with(self, receiver: Receiver) -> None:
        """Receive by compiled code from now on; the receiver is the subscriber's alone."""
        self._receiver = receiver

    def add(
        self, source: SourceKey, endpoint: str, topic: str = "", *, shared_sequence: bool = False
    ) -> None:
        """Subscribe; ZMQ connects and reconnects by itself.

        With `shared_sequence` the topic is one of several whose messages are numbered together.
        """
        self._command(_Add(source, endpoint, topic, shared_sequence))

    def listen(self, listening: Listening, endpoint: str) -> None:
        """Bind, so that engines can connect; their messages come with a `Peer` as source."""
        self._command(_Add(listening, endpoint))

    def remove(self, source: SourceKey) -> None:
        """Take what the socket has, then close it; `receive` returns a last, empty `Received` of it."""
        self._command(_Remove(source))

    def pause(self, source: Key) -> None:
        """Leave a source unread until `go_on`: its engine keeps what it publishes, or drops it.

        What comes of a `Peer` meanwhile is let go and counted, because others use its socket.
        """
        self._command(_Pause(source))

    def go_on(self, source: Key) -> None:
        """Read a paused source again."""
        self._command(_GoOn(source))

    def connected(self, source: Key) -> bool:
        """Tell whether a source is connected, at most REFRESH_SECONDS late.

        A peer is connected while the connection that its last message came through is.
        """
        return self._connections.since(source) is not None

    async def receive(self) -> Received | Together | None:
        """Wait for messages; None when the subscriber has stopped and everything was handed over.

        Raises what ended the thread before its time.
        """
        return await self._hand_over.receive()

    def take(self) -> Received | Together | None:
        """Return messages that are there, without waiting; raises as `receive` does."""
        return self._hand_over.take()

    async def wait(self, seconds: float | None) -> None:
        """Wait for messages or the end, for some seconds at most."""
        await self._hand_over.wait(seconds)

    def release(self, size: int) -> None:
        """Give back the bytes of messages that were dealt with."""
        self._hand_over.release(size)

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

    def _command(self, command: _Add | _Remove | _Pause | _GoOn) -> None:
        self._commands.append(command)
        self._wake()

    def _wake(self) -> None:
        with contextlib.suppress(zmq.Again):  # so many wake-ups wait that one more says nothing
            self._wake_up.send(b"", zmq.NOBLOCK)

    # From here on in the thread.

    def _run(self) -> None:
        sockets: dict[_Socket, SourceKey | Listening] = {}
        ready = ReadySockets()
        failure: BaseException | None = None
        try:
            self._serve(sockets, ready)
        except BaseException as error:
            failure = error
        finally:
            ready.close()
            for socket in sockets:
                self._connections.forget(socket)
                socket.close(0)
            self._woken.close(0)
            self._hand_over.end(failure)

    def _serve(self, sockets: dict[_Socket, SourceKey | Listening], ready: ReadySockets) -> None:
        commands = zmq.Poller()
        commands.register(self._woken, zmq.POLLIN)
        ready.add(self._woken)
        rest_seconds = 0.0
        refresh_at = time.monotonic() + REFRESH_SECONDS
        while not self._stopping:
            seconds = max(0.0, refresh_at - time.monotonic())
            if self._hand_over.full:
                readable = [self._woken] if commands.poll(int(seconds * 1000)) else []
            elif not rest_seconds:
                readable = ready.wait(seconds)
                if not readable:
                    self._emptied_at = self._clock()
            else:
                time.sleep(rest_seconds)
                readable = []
                rest_seconds = 0.0
            if self._woken in readable:
                self._obey(sockets, ready)
                readable = [
                    socket for socket in readable if socket in sockets and sockets[socket] not in self._paused
                ]
            if readable:
                # Whoever takes messages pauses a source that crowds, but may be busy with one of them.
                readable = [socket for socket in readable if not self._hand_over.crowds(sockets[socket])]
                rest_seconds = REST_SECONDS
            if readable:
                rest_seconds = self._turn(sockets, ready, readable)
                if rest_seconds:
                    self._emptied_at = self._clock()
            if time.monotonic() >= refresh_at:
                self._connections.refresh()
                self._dial()
                refresh_at = time.monotonic() + REFRESH_SECONDS
        for source in [*self._paused]:
            self._go_on(source, sockets, ready)
        deadline = time.monotonic() + self._stop_seconds
        while time.monotonic() < deadline:
            if self._hand_over.full:
                time.sleep(REST_SECONDS)
            elif readable := [socket for socket in ready.wait(0) if socket in sockets]:
                self._turn(sockets, ready, readable)
            else:
                break

    def _obey(self, sockets: dict[_Socket, SourceKey | Listening], ready: ReadySockets) -> None:
        with contextlib.suppress(zmq.Again):
            while True:
                self._woken.recv(zmq.NOBLOCK)
        ready.served(self._woken, emptied=True)
        while self._commands:
            command = self._commands.popleft()
            if isinstance(command, _Add):
                try:
                    # Commands that wait are mostly sockets to come: a start opens all at once.
                    limit = high_water_mark(1 + len(sockets) + len(self._commands))
                    socket = self._opened(command, limit)
                except zmq.ZMQError as error:
                    refusal = EndpointRefused(command.source, command.endpoint, error.strerror)
                    if isinstance(command.source, Listening):
                        raise refusal from error
                    self._hand_over.call(partial(self._refused, refusal))
                else:
                    sockets[socket] = command.source
                    ready.add(socket)
            elif isinstance(command, _Pause):
                self._pause(command.source, sockets, ready)
            elif isinstance(command, _GoOn):
                self._go_on(command.source, sockets, ready)
            else:
                self._go_on(command.source, sockets, ready)
                for socket in [socket for socket, source in sockets.items() if source == command.source]:
                    self._close(socket, command.source, ready)
                    del sockets[socket]
                self._emitters.pop(command.source, None)
                self._hand_over.put_last(command.source, self._clock())
                self._hand_over.tell()

    def _pause(self, source: Key, sockets: dict[_Socket, SourceKey | Listening], ready: ReadySockets) -> None:
        if source not in self._paused:
            self._paused.add(source)
            for socket in [socket for socket, owner in sockets.items() if owner == source]:
                ready.remove(socket)

    def _go_on(self, source: Key, sockets: dict[_Socket, SourceKey | Listening], ready: ReadySockets) -> None:
        if source in self._paused:
            self._paused.remove(source)
            for socket in [socket for socket, owner in sockets.items() if owner == source]:
                ready.add(socket)

    def _opened(self, command: _Add, messages: int) -> _Socket:
        topic = "" if command.shared_sequence else command.topic
        socket = new_sub_socket(self._context, topic, messages)
        try:
            if isinstance(command.source, Listening):
                self._connections.listen(socket)
                listen(socket, command.endpoint)
            else:
                if command.shared_sequence:
                    self._emitters[command.source] = Emitter(command.topic)
                self._connections.watch(socket, command.source)
                dialling = Dialling(socket, command.endpoint, time.monotonic())
                self._dialling[socket] = command.source, dialling
        except zmq.ZMQError:
            self._connections.forget(socket)
            socket.close(0)
            raise
        return socket

    def _dial(self) -> None:
        """Have sockets that are not connected try other addresses, unless they may hold what is unread."""
        if self._hand_over.full:
            return
        now = time.monotonic()
        for source, dialling in self._dialling.values():
            if source not in self._paused:
                dialling.look(self._connections.since(source) is not None, now)

    def _close(self, socket: _Socket, source: SourceKey, ready: ReadySockets) -> None:
        """Take what a socket holds, which its high-water mark bounds, then close it."""
        for _ in range(1 + 2 * SOCKET_MESSAGES // TURN_MESSAGES):
            if self._take([socket], {socket: source}, self._clock())[0]:
                break
        ready.remove(socket)
        self._connections.forget(socket)
        self._dialling.pop(socket, None)
        socket.close(0)

    def _turn(
        self,
        sockets: dict[_Socket, SourceKey | Listening],
        ready: ReadySockets,
        readable: list[_Socket],
    ) -> float:
        """Take a bounded number from each readable socket; return how long to rest, 0 while there is more."""
        more = False
        now = self._clock()
        before = self._hand_over.put_messages
        at = 0
        while at < len(readable):
            if self._hand_over.full:
                more = True
                break
            for emptied in self._take(readable[at : at + TURN_SOCKETS], sockets, now):
                ready.served(readable[at], emptied=emptied)
                more = more or not emptied
                at += 1
        self._hand_over.tell()
        if more:
            return 0.0
        few = self._hand_over.put_messages - before <= FEW_MESSAGES * len(readable)
        return self._rest_seconds if few else REST_SECONDS

    def _take(
        self, readable: Sequence[_Socket], sockets: Mapping[_Socket, SourceKey | Listening], now: float
    ) -> list[bool]:
        """Hand over what the first sockets have, up to the bounds of a turn; whether each was emptied."""
        source = sockets[readable[0]]
        if isinstance(source, Listening):
            return [self._take_by_topic(readable[0], source, now)]
        emitter = self._emitters.get(source)
        if emitter is not None or self._receiver is None:
            messages, size, emptied = receive_messages(readable[0], TURN_MESSAGES, TURN_BYTES)
            bundle = Bundle.of(messages if emitter is None else emitter.view(messages))
            self._hand_over.put(source, bundle, size, now)
            return [emptied]
        sources: list[SourceKey] = []
        for socket in readable:
            source = sockets[socket]
            if isinstance(source, Listening) or source in self._emitters:
                break
            sources.append(source)
        taken = self._receiver.take(readable[: len(sources)], self._hand_over.free)
        for first, end in taken.ranges(SLOT_BATCHES, self._together_each, TOGETHER_BYTES):
            if end - first == 1:
                bundle = taken.bundle(first)
                self._hand_over.put(sources[first], bundle, bundle.size, now)
            else:
                numbers, bundles = taken.bundles(first, end)
                self._hand_over.put_together([sources[number] for number in numbers], bundles, now)
        return taken.emptied

    def _take_by_topic(self, socket: _Socket, listening: Listening, now: float) -> bool:
        heard, emptied = receive_by_topic(socket, TURN_MESSAGES, TURN_BYTES)
        for topic, under_topic in heard.items():
            peer = Peer(listening, topic)
            if under_topic.descriptor is not None:
                self._connections.heard(socket, under_topic.descriptor, peer)
            if peer in self._paused or self._hand_over.crowds(peer):
                self._hand_over.put_left_out(peer, len(under_topic.messages), now)
                continue
            self._hand_over.put(peer, Bundle.of(under_topic.messages), under_topic.size, now)
        return emptied
