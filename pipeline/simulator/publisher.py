"""The sockets of an engine: PUB for the events, ROUTER for replay, as vLLM's ZmqEventPublisher.

A batch is three frames: topic, sequence number (8 bytes, big-endian, from 0), payload. A replay request is
`[b"", first sequence]` from a DEALER; the answer is every buffered batch from there on, then an end marker.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Literal

import zmq

from connectors.process.binding import bound

END_SEQUENCE = b"\xff" * 8
SEND_HWM = 100_000
"""vLLM's default."""
LOSSLESS_HWM = 1_000
"""Waiting instead of dropping needs no deep queue, and a trace's batches are large."""
LINGER_MILLISECONDS = 1_000
LOSSLESS_LINGER_MILLISECONDS = 60_000
LOOKS_UP_MILLISECONDS = 200
"""How often a publisher that waits for room sees whether it should stop."""


@dataclass(frozen=True, slots=True)
class PublisherSettings:
    """Endpoints are those of rank 0; rank r uses port + r. A tcp port of 0 takes any free one."""

    endpoint: str
    replay_endpoint: str | None = None
    rank: int = 0
    topic: str = ""
    bind: bool = True
    """False connects the PUB to a subscriber that binds; the ROUTER always binds."""
    buffer_steps: int = 10_000
    replay_frames: Literal[2, 3] = 3
    """2 answers `[b"", seq, payload]` (vLLM to 0.25), 3 `[b"", topic, seq, payload]`."""
    send_hwm: int = SEND_HWM
    """Messages queued for a subscriber before they are dropped."""
    lossless: bool = False
    """A full queue makes `publish` wait instead of dropping: for playing faster than real time."""
    replay_end: bool = True
    """False withholds the end marker, as a full ROUTER queue does before vLLM 0.33."""
    replay_holes: frozenset[int] = frozenset()
    """Sequence numbers missing from every replay, for the same reason."""


class Publisher:
    """Publishes from the thread that calls it; replay requests are answered by a thread of its own."""

    def __init__(
        self,
        settings: PublisherSettings,
        context: zmq.Context[zmq.Socket[bytes]] | None = None,
        stopped: threading.Event | None = None,
    ) -> None:
        """Once `stopped` is set, nobody waits for subscribers that take nothing.

        Raises OSError when an address is taken.
        """
        self.settings = settings
        self._stopped = stopped or threading.Event()
        self._context = context or zmq.Context.instance()
        self._topic = settings.topic.encode()
        self._sequence = 0
        self._to_drop = 0
        self._subscriptions = 0
        self._buffer: deque[tuple[bytes, bytes]] = deque(maxlen=settings.buffer_steps)
        self._lock = threading.Lock()
        # XPUB sends what PUB sends, and lets us see who has subscribed.
        self._pub = self._context.socket(zmq.XPUB)
        self._pub.setsockopt(zmq.XPUB_VERBOSER, 1)
        self._pub.setsockopt(zmq.XPUB_NODROP, int(settings.lossless))
        self._pub.setsockopt(zmq.SNDHWM, LOSSLESS_HWM if settings.lossless else settings.send_hwm)
        self._pub.setsockopt(zmq.SNDTIMEO, LOOKS_UP_MILLISECONDS)
        self._pub.setsockopt(
            zmq.LINGER, LOSSLESS_LINGER_MILLISECONDS if settings.lossless else LINGER_MILLISECONDS
        )
        self.endpoint = _opened(self._pub, offset_endpoint(settings.endpoint, settings.rank), settings.bind)
        self.replay_endpoint: str | None = None
        self._replay: _ReplayServer | None = None
        if settings.replay_endpoint is not None:
            try:
                self._replay = _ReplayServer(
                    self._context, offset_endpoint(settings.replay_endpoint, settings.rank), self._answer
                )
            except OSError:
                self._pub.close(0)
                raise
            self.replay_endpoint = self._replay.endpoint

    def __enter__(self) -> Publisher:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def published(self) -> int:
        """Sequence numbers used in this engine session."""
        return self._sequence

    @property
    def last_sequence(self) -> int | None:
        """The newest sequence number, None before the first batch."""
        return self._sequence - 1 if self._sequence else None

    @property
    def subscribers(self) -> int:
        """Subscriptions seen so far, less those that ended."""
        while self._pub.poll(0, zmq.POLLIN):
            self._subscriptions += 1 if self._pub.recv()[:1] == b"\x01" else -1
        return self._subscriptions

    def wait_subscribers(self, count: int = 1, timeout_seconds: float = 30.0) -> bool:
        """Wait until `count` subscriptions exist; False when they did not come in time."""
        deadline = time.monotonic() + timeout_seconds
        while self.subscribers < count:
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            self._pub.poll(int(left * 1000) + 1, zmq.POLLIN)
        return True

    def publish(self, payload: bytes) -> int:
        """Send one batch and keep it for replay; return its sequence number."""
        number = self.skip()
        sequence = number.to_bytes(8, "big")
        with self._lock:
            self._buffer.append((sequence, payload))
        if self._to_drop:
            self._to_drop -= 1
        else:
            self._send((self._topic, sequence, payload))
        return number

    def _send(self, frames: tuple[bytes, ...]) -> None:
        """Send a message; without room for it, wait for that until stopped, and drop it then."""
        while True:
            try:
                self._pub.send_multipart(frames)
                return
            except zmq.Again:
                if self._stopped.is_set():
                    return

    def skip(self) -> int:
        """Use up a sequence number without a batch, as vLLM does when it cannot encode one."""
        number = self._sequence
        self._sequence += 1
        return number

    def drop_next(self, count: int) -> None:
        """Lose the next `count` batches on the way out; replay still has them."""
        self._to_drop += count

    def restart(self) -> None:
        """Begin a new engine session on the same addresses: sequence 0, empty replay buffer."""
        with self._lock:
            self._buffer.clear()
        self._sequence = 0

    def close(self) -> None:
        """Close the sockets; what is queued leaves while the context is being terminated."""
        if self._replay is not None:
            self._replay.close()
        self._pub.close(LINGER_MILLISECONDS if self._stopped.is_set() else None)

    def _answer(self, router: zmq.Socket[bytes], identity: bytes, first: int) -> None:
        with self._lock:
            batches = tuple(self._buffer)
        head = (identity, b"") if self.settings.replay_frames == 2 else (identity, b"", self._topic)
        for sequence, payload in batches:
            number = int.from_bytes(sequence, "big")
            if number >= first and number not in self.settings.replay_holes:
                router.send_multipart((*head, sequence, payload))
        if self.settings.replay_end:
            end = (identity, b"") if self.settings.replay_frames == 2 else (identity, b"", b"")
            router.send_multipart((*end, END_SEQUENCE, b""))


_Answer = Callable[["zmq.Socket[bytes]", bytes, int], None]


class _ReplayServer:
    """Owns the ROUTER; sleeps until a request comes."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], endpoint: str, answer: _Answer) -> None:
        self._answer = answer
        self._router = context.socket(zmq.ROUTER)
        # vLLM before 0.33 leaves the default of 1000 and loses replies; here only `replay_holes` are lost.
        self._router.setsockopt(zmq.SNDHWM, 0)
        self._router.setsockopt(zmq.LINGER, 0)
        self.endpoint = _opened(self._router, endpoint, bind=True)
        address = f"inproc://replay-stop-{id(self)}"
        self._stopped = context.socket(zmq.PAIR)
        self._stopped.bind(address)
        self._stop = context.socket(zmq.PAIR)
        self._stop.connect(address)
        self._thread = threading.Thread(target=self._serve, name=f"replay {self.endpoint}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._stop.send(b"")
        self._thread.join()
        self._stop.close(0)

    def _serve(self) -> None:
        poller = zmq.Poller()
        poller.register(self._router, zmq.POLLIN)
        poller.register(self._stopped, zmq.POLLIN)
        while self._stopped not in (ready := dict(poller.poll())):
            if self._router not in ready:
                continue
            frames = self._router.recv_multipart()
            if len(frames) != 3 or frames[1] != b"":
                continue  # not answered, as by the engine
            with contextlib.suppress(zmq.ZMQError):  # the client has gone
                self._answer(self._router, frames[0], int.from_bytes(frames[2], "big"))
        self._router.close()
        self._stopped.close()


def offset_endpoint(endpoint: str, rank: int) -> str:
    """Return the endpoint of a DP rank: tcp port + rank, a suffix otherwise (vLLM refuses ranks with ipc)."""
    if rank == 0:
        return endpoint
    if not endpoint.startswith("tcp://"):
        return f"{endpoint}_dp{rank}"
    host, _, port = endpoint.rpartition(":")
    return endpoint if port == "0" else f"{host}:{int(port) + rank}"


def _opened(socket: zmq.Socket[bytes], endpoint: str, bind: bool) -> str:
    if not bind:
        socket.connect(endpoint)
        return endpoint
    return bound(socket, endpoint)
