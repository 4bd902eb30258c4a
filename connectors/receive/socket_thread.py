"""The thread that owns all SUB sockets: it opens them, reads them in turns and closes them on request."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable, Sequence
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
from connectors.receive.received import Key
from connectors.receive.sub_sockets import (
    PEER_MESSAGES,
    SOCKET_MESSAGES,
    EndpointRefused,
    high_water_mark,
    new_sub_socket,
)
from connectors.sources import Listening, Peer, SourceKey

TURN_MESSAGES = 512
"""Messages taken from one socket before the next gets its turn."""
TURN_SOCKETS = 256
"""Sockets that may be emptied in one call."""
TURN_BYTES = 4 << 20
"""Payload bytes taken from one socket before the next gets its turn."""
TOGETHER_BYTES = 256 << 10
"""Most that several sockets hand over together: little enough to need no turns."""
TOGETHER_EACH_BYTES = 16 << 10
"""Most from each of them: a socket with more is handed over by itself, and waits for its turn."""
REST_SECONDS = 0.005
"""Least pause after a turn that emptied the sockets: a turn costs as much for one message as for hundreds."""
MAX_REST_SECONDS = 0.02
FEW_MESSAGES = 8
"""With more for each socket on average, one may fill its queue in a longer rest."""
REFRESH_SECONDS = 1.0
"""How often to find out which sockets are connected."""

if TYPE_CHECKING:
    from connectors.receive.compiled_receiver import Receiver

_Socket = zmq.Socket[bytes]


@dataclass(frozen=True, slots=True)
class Add:
    source: SourceKey | Listening
    endpoint: str
    topic: str = ""
    shared_sequence: bool = False


@dataclass(frozen=True, slots=True)
class Remove:
    source: SourceKey


@dataclass(frozen=True, slots=True)
class Pause:
    source: Key


@dataclass(frozen=True, slots=True)
class GoOn:
    source: Key


Command = Add | Remove | Pause | GoOn


class SocketThread:
    """What the thread does. Other threads only queue commands, and wake it through the socket `woken`.

    It needs no lock, as each of these is one operation: they append to a deque, set `receiver` once, set that
    it is to stop, and read `emptied_at`.
    """

    def __init__(
        self,
        context: zmq.Context[_Socket],
        woken: _Socket,
        hand_over: HandOver,
        connections: Connections[Key],
        refused: Callable[[EndpointRefused], None],
        *,
        rest_seconds: float,
        together: bool,
    ) -> None:
        """The arguments that `Subscriber` takes are described there."""
        self.receiver: Receiver | None = None
        """The compiled receiver, if there is one; set once, while the thread runs."""
        self.emptied_at = time.monotonic()
        """When all sockets were last found empty, by the monotonic clock."""
        self._context = context
        self._woken = woken
        self._hand_over = hand_over
        self._connections = connections
        self._refused = refused
        self._rest_seconds = min(max(rest_seconds, REST_SECONDS), MAX_REST_SECONDS)
        self._together_each = TOGETHER_EACH_BYTES if together else 0
        self._commands: deque[Command] = deque()
        self._sockets: dict[_Socket, SourceKey | Listening] = {}
        self._ready = ReadySockets()
        self._paused: set[Key] = set()
        self._dialling: dict[_Socket, tuple[SourceKey, Dialling]] = {}
        self._emitters: dict[SourceKey, Emitter] = {}
        self._stopping = False
        self._stop_seconds = 0.0

    def post(self, command: Command) -> None:
        """Queue a command, which the thread executes when it is next woken."""
        self._commands.append(command)

    def stop(self, seconds: float) -> None:
        """Let the thread, when it is woken, take what the sockets hold, for at most `seconds`, and end."""
        self._stop_seconds = seconds
        self._stopping = True

    def run(self) -> None:
        """Read until `stop`; what ends the thread before that is raised where messages are taken."""
        failure: BaseException | None = None
        try:
            self._serve()
        except BaseException as error:
            failure = error
        finally:
            self._ready.close()
            for socket in self._sockets:
                self._connections.forget(socket)
                socket.close(0)
            self._woken.close(0)
            self._hand_over.end(failure)

    def _serve(self) -> None:
        commands = zmq.Poller()
        commands.register(self._woken, zmq.POLLIN)
        self._ready.add(self._woken)
        rest_seconds = 0.0
        refresh_at = time.monotonic() + REFRESH_SECONDS
        while not self._stopping:
            seconds = max(0.0, refresh_at - time.monotonic())
            if self._hand_over.full:
                readable = [self._woken] if commands.poll(int(seconds * 1000)) else []
            elif not rest_seconds:
                readable = self._ready.wait(seconds)
                if not readable:
                    self.emptied_at = time.monotonic()
            else:
                time.sleep(rest_seconds)
                readable = []
                rest_seconds = 0.0
            if self._woken in readable:
                self._obey()
                readable = [
                    socket
                    for socket in readable
                    if socket in self._sockets and self._sockets[socket] not in self._paused
                ]
            if readable:
                # The pump pauses a source that crowds out others, but may be busy with a message just now.
                readable = [
                    socket for socket in readable if not self._hand_over.exceeds_share(self._sockets[socket])
                ]
                rest_seconds = REST_SECONDS
            if readable:
                rest_seconds = self._read_all(readable)
                if rest_seconds:
                    self.emptied_at = time.monotonic()
            if time.monotonic() >= refresh_at:
                self._connections.refresh()
                self._dial()
                refresh_at = time.monotonic() + REFRESH_SECONDS
        for source in [*self._paused]:
            self._go_on(source)
        deadline = time.monotonic() + self._stop_seconds
        while time.monotonic() < deadline:
            if self._hand_over.full:
                time.sleep(REST_SECONDS)
            elif readable := [socket for socket in self._ready.wait(0) if socket in self._sockets]:
                self._read_all(readable)
            else:
                break

    def _obey(self) -> None:
        with contextlib.suppress(zmq.Again):
            while True:
                self._woken.recv(zmq.NOBLOCK)
        self._ready.served(self._woken, emptied=True)
        while self._commands:
            command = self._commands.popleft()
            if isinstance(command, Add):
                try:
                    # Commands that wait are mostly sockets to come: a start opens all at once.
                    socket = self._opened(command, 1 + len(self._sockets) + len(self._commands))
                except zmq.ZMQError as error:
                    refusal = EndpointRefused(command.source, command.endpoint, error.strerror)
                    if isinstance(command.source, Listening):
                        raise refusal from error
                    self._hand_over.call(partial(self._refused, refusal))
                else:
                    self._sockets[socket] = command.source
                    self._ready.add(socket)
            elif isinstance(command, Pause):
                self._pause(command.source)
            elif isinstance(command, GoOn):
                self._go_on(command.source)
            else:
                self._go_on(command.source)
                for socket in self._of(command.source):
                    self._close(socket)
                self._emitters.pop(command.source, None)
                self._hand_over.put_last(command.source, time.time())
                self._hand_over.wake_loop()

    def _pause(self, source: Key) -> None:
        if source not in self._paused:
            self._paused.add(source)
            for socket in self._of(source):
                self._ready.remove(socket)

    def _go_on(self, source: Key) -> None:
        if source in self._paused:
            self._paused.remove(source)
            for socket in self._of(source):
                self._ready.add(socket)

    def _of(self, source: Key) -> list[_Socket]:
        return [socket for socket, owner in self._sockets.items() if owner == source]

    def _opened(self, command: Add, sockets: int) -> _Socket:
        """Open one of so many sockets."""
        topic = "" if command.shared_sequence else command.topic
        listens = isinstance(command.source, Listening)
        messages = PEER_MESSAGES if listens else high_water_mark(sockets)
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
        """Let sockets that are not connected try other addresses, unless they may hold unread messages."""
        if self._hand_over.full:
            return
        now = time.monotonic()
        for source, dialling in self._dialling.values():
            if source not in self._paused:
                dialling.look(self._connections.since(source) is not None, now)

    def _close(self, socket: _Socket) -> None:
        """Take what a socket holds, which its high-water mark bounds, then close it."""
        for _ in range(1 + 2 * SOCKET_MESSAGES // TURN_MESSAGES):
            if self._take([socket], time.time())[0]:
                break
        del self._sockets[socket]
        self._ready.remove(socket)
        self._connections.forget(socket)
        self._dialling.pop(socket, None)
        socket.close(0)

    def _read_all(self, readable: list[_Socket]) -> float:
        """Take a bounded number from each readable socket; return how long to rest, 0 while there is more."""
        more = False
        now = time.time()
        before = self._hand_over.put_messages
        at = 0
        while at < len(readable):
            if self._hand_over.full:
                more = True
                break
            for emptied in self._take(readable[at : at + TURN_SOCKETS], now):
                self._ready.served(readable[at], emptied=emptied)
                more = more or not emptied
                at += 1
        self._hand_over.wake_loop()
        if more:
            return 0.0
        few = self._hand_over.put_messages - before <= FEW_MESSAGES * len(readable)
        return self._rest_seconds if few else REST_SECONDS

    def _take(self, readable: Sequence[_Socket], now: float) -> list[bool]:
        """Hand over what the first sockets have, up to the bounds of a turn; return which were emptied."""
        source = self._sockets[readable[0]]
        if isinstance(source, Listening):
            return [self._take_by_topic(readable[0], source, now)]
        emitter = self._emitters.get(source)
        if emitter is not None or self.receiver is None:
            messages, size, emptied = receive_messages(readable[0], TURN_MESSAGES, TURN_BYTES)
            bundle = Bundle.of(messages if emitter is None else emitter.view(messages))
            self._hand_over.put(source, bundle, size, now)
            return [emptied]
        sources: list[SourceKey] = []
        for socket in readable:
            source = self._sockets[socket]
            if isinstance(source, Listening) or source in self._emitters:
                break
            sources.append(source)
        taken = self.receiver.take(readable[: len(sources)], self._hand_over.free)
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
            if peer in self._paused or self._hand_over.exceeds_share(peer):
                self._hand_over.put_left_out(peer, len(under_topic.messages), now)
                continue
            self._hand_over.put(peer, Bundle.of(under_topic.messages), under_topic.size, now)
        return emptied
