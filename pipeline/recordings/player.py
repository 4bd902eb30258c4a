"""Acts as a recorded engine: PUB with the recorded bytes, ROUTER that replays what was published."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Literal

import zmq

from connectors.process.binding import bound
from connectors.replay.protocol import END_SEQUENCE
from pipeline.recordings.format import Frame

BUFFER_STEPS = 10_000
"""Batches kept for replay, as vLLM's default."""
SEND_HWM = 100_000
_LINGER_MS = 5000


class EngineSockets:
    """PUB and ROUTER of one source; the bytes published are those given."""

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        endpoint: str,
        replay_endpoint: str | None,
        replay_frames: Literal[2, 3],
    ) -> None:
        """Raises OSError when an endpoint cannot be listened on."""
        self._replay_frames = replay_frames
        self._buffer: deque[tuple[bytes, bytes, bytes]] = deque(maxlen=BUFFER_STEPS)
        self._subscriptions = 0
        # XPUB sends what PUB sends and shows who subscribed; when a queue is full it can wait, as a file may.
        self.pub = context.socket(zmq.XPUB)
        self.pub.setsockopt(zmq.XPUB_VERBOSER, 1)
        self.pub.setsockopt(zmq.XPUB_NODROP, 1)
        self.pub.setsockopt(zmq.SNDHWM, SEND_HWM)
        self.pub.setsockopt(zmq.LINGER, _LINGER_MS)
        self.endpoint = bound(self.pub, endpoint)
        self.router: zmq.Socket[bytes] | None = None
        self.replay_endpoint: str | None = None
        if replay_endpoint is not None:
            self.router = context.socket(zmq.ROUTER)
            # The default of 1000 would drop replies, as engines before vLLM 0.33 do.
            self.router.setsockopt(zmq.SNDHWM, 0)
            self.router.setsockopt(zmq.LINGER, 0)
            try:
                self.replay_endpoint = bound(self.router, replay_endpoint)
            except OSError:
                self.pub.close(0)
                raise

    @property
    def subscribers(self) -> int:
        """How many subscriptions there are now."""
        while self.pub.poll(0, zmq.POLLIN):
            self._subscriptions += 1 if self.pub.recv().startswith(b"\x01") else -1
        return self._subscriptions

    def publish(self, parts: Sequence[bytes]) -> bool:
        """Send one message; False, and nothing sent, while a subscriber's queue is full."""
        try:
            self.pub.send_multipart(parts, zmq.NOBLOCK)
        except zmq.Again:
            return False
        if len(parts) == 3:
            self._buffer.append((parts[0], parts[1], parts[2]))
        return True

    def answer_replay(self) -> None:
        """Answer a waiting replay request: all buffered batches from the asked one, then the end marker."""
        if self.router is None:
            return
        request = self.router.recv_multipart()
        if len(request) != 3 or request[1] != b"":
            return  # as the engine: not answered
        identity, _, asked = request
        first = int.from_bytes(asked, "big")
        for topic, seq, payload in self._buffer:
            if int.from_bytes(seq, "big") >= first:
                middle = (topic,) if self._replay_frames == 3 else ()
                self.router.send_multipart((identity, b"", *middle, seq, payload))
        middle = (b"",) if self._replay_frames == 3 else ()
        self.router.send_multipart((identity, b"", *middle, END_SEQUENCE, b""))

    def close(self) -> None:
        """Close the sockets; what is queued gets five seconds to leave."""
        self.pub.close()
        if self.router is not None:
            self.router.close()


class Player:
    """Publishes frames at their recorded pace and answers replay requests all the while, in one thread."""

    def __init__(self, engines: Sequence[EngineSockets]) -> None:
        self._engines = engines
        self._stopped = False
        self._poller = zmq.Poller()
        for engine in engines:
            if engine.router is not None:
                self._poller.register(engine.router, zmq.POLLIN)

    def wait_subscribers(self, count: int) -> None:
        """Return when every engine has `count` subscriptions, or after `stop`."""
        while not self._stopped and any(engine.subscribers < count for engine in self._engines):
            self._serve(0.02)

    def play(self, frames: Iterable[tuple[int, Frame]], speed: float | None) -> int:
        """Publish each frame on the engine with the number paired with it.

        `speed` is a factor of the recorded pace, None plays as fast as the file is read.
        Returns how many were published; fewer than given only after `stop`.
        """
        published = 0
        began: tuple[float, float] | None = None
        for number, frame in frames:
            if speed is not None:
                began = began or (time.monotonic(), frame.received_at)
                self._serve_until(began[0] + (frame.received_at - began[1]) / speed)
            else:
                self._serve(0.0)
            while not self._stopped and not self._engines[number].publish(frame.parts):
                self._serve(0.01)
            if self._stopped:
                return published
            published += 1
        return published

    def linger(self, seconds: float | None) -> None:
        """Keep answering replay requests for so long, None until `stop`."""
        deadline = float("inf") if seconds is None else time.monotonic() + seconds
        self._serve_until(deadline)

    def stop(self) -> None:
        """Make `play` and `linger` return soon; may be called by a signal handler."""
        self._stopped = True

    def _serve_until(self, deadline: float) -> None:
        while not self._stopped and (left := deadline - time.monotonic()) > 0:
            self._serve(min(left, 0.2))

    def _serve(self, seconds: float) -> None:
        """Answer the first replay requests that come within this time."""
        if not self._poller.sockets:
            if seconds:
                time.sleep(seconds)
            return
        ready = dict(self._poller.poll(int(seconds * 1000)))
        for engine in self._engines:
            if engine.router in ready:
                engine.answer_replay()
