"""Engines that lie, each in one way, about all that an engine says: payloads, numbers, times, replays."""

from __future__ import annotations

import random
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import zmq

from schemas.discovery_settings import Replica
from tests.fuzz.hostile import TIMES
from tests.fuzz.mutants import Mutants, recorded_payloads

Context = zmq.Context[zmq.Socket[bytes]]
ANYWHERE = "tcp://127.0.0.1:*"
END = [b"", b"\xff" * 8, b""]
MAX_BYTES = 2_500
"""Of the recorded payloads that are lied with: what counts here is how many there are."""
BUFFERED = 300
FLOOD_MESSAGES = 20_000
NUMBERS = (0, 1, 10**12, 2**47, 2**48 - 1, 2**48, 2**63 - 1, 2**63, 2**64 - 2, 2**64 - 1)
WAIT_SECONDS = 0.002


def number(seq: int) -> bytes:
    """Return the frame of a sequence number, whatever it is."""
    return (seq % 2**64).to_bytes(8, "big")


class Liar:
    """An engine whose payloads are recorded ones, until a subclass changes something about them."""

    name = "plain"

    def __init__(self, context: Context, seed: int) -> None:
        self.rng = random.Random(f"{self.name}/{seed}")
        self.payloads = [payload for payload in recorded_payloads() if len(payload) <= MAX_BYTES]
        self.mutants = Mutants(seed, self.payloads)
        self.seq = 0
        self.sent = 0
        self.requests = 0
        """Replay requests that were answered, in whatever way."""
        self.buffer: deque[tuple[int, bytes]] = deque(maxlen=BUFFERED)
        # It waits instead of dropping: every lie is to be told.
        self._pub = context.socket(zmq.XPUB)
        self._pub.setsockopt(zmq.XPUB_NODROP, 1)
        self._pub.setsockopt(zmq.SNDHWM, 1_000)
        self._router = context.socket(zmq.ROUTER)
        self._router.setsockopt(zmq.SNDHWM, 0)
        for socket in (self._pub, self._router):
            socket.setsockopt(zmq.LINGER, 0)
            socket.bind(ANYWHERE)
        endpoint, replay = (
            socket.getsockopt_string(zmq.LAST_ENDPOINT) for socket in (self._pub, self._router)
        )
        self.replica = Replica(
            id=f"liar-{self.name}", model="lies", endpoint=endpoint, replay_endpoint=replay
        )
        self._stopping = threading.Event()
        self._answering = threading.Thread(target=self._answer_requests, daemon=True)
        self._answering.start()

    def close(self) -> None:
        """Answer no longer and publish no longer."""
        self._stopping.set()
        self._answering.join()
        self._pub.close(0)
        self._router.close(0)

    def lie(self) -> None:
        """Publish one message."""
        for frames in self.messages(self.rng.choice(self.payloads)):
            self._send(frames)

    def messages(self, payload: bytes) -> Iterator[Sequence[bytes]]:
        """Yield what is published for a recorded payload."""
        yield self.numbered(payload)

    def numbered(self, payload: bytes) -> Sequence[bytes]:
        """Return a message with the next number, and keep it for replays."""
        self.buffer.append((self.seq, payload))
        self.seq += 1
        return [b"kv", number(self.seq - 1), payload]

    def answers(self, first: int) -> Iterator[Sequence[bytes]]:
        """Yield the messages of an answer to a replay request."""
        yield from ([b"", number(seq), payload] for seq, payload in list(self.buffer) if seq >= first)
        yield END

    def _send(self, frames: Sequence[bytes]) -> None:
        while True:
            try:
                self._pub.send_multipart(frames, zmq.NOBLOCK)
            except zmq.Again:
                time.sleep(WAIT_SECONDS)
            else:
                self.sent += 1
                return

    def _answer_requests(self) -> None:
        while not self._stopping.is_set():
            if not self._router.poll(50):
                continue
            identity, *frames = self._router.recv_multipart()
            self.requests += 1
            for answer in self.answers(int.from_bytes(frames[-1], "big")):
                if self._stopping.is_set():
                    return
                self._router.send_multipart([identity, *answer])


class Payloads(Liar):
    """Lies about what a batch is."""

    name = "payloads"

    def messages(self, payload: bytes) -> Iterator[Sequence[bytes]]:
        yield self.numbered(self.mutants.mutant(self.sent))


class Numbers(Liar):
    """Lies about the numbers of batches, and about what a message is."""

    name = "numbers"

    def messages(self, payload: bytes) -> Iterator[Sequence[bytes]]:
        kind = self.rng.random()
        if kind < 0.85:
            yield self.numbered(payload)
        elif kind < 0.88:
            self.seq += self.rng.choice((1, 2, 5, 1_000))
            yield self.numbered(payload)
        elif kind < 0.90:
            yield [b"kv", number(self.rng.choice((*NUMBERS, self.seq - 1, self.seq + 1))), payload]
        elif kind < 0.94:  # a number that was there, mostly with another payload
            yield [b"kv", number(max(0, self.seq - self.rng.randrange(1, BUFFERED))), payload]
        elif kind < 0.945:
            self.seq = 0
            yield self.numbered(payload)
        else:
            yield self.rng.choice(
                (
                    [payload],
                    [b"kv", payload],
                    [b"kv", bytes(7), payload],
                    [b"kv", bytes(9), payload],
                    [b"kv", number(self.seq), payload, payload],
                    [b""] * 6,
                    [b"kv", b"\xff" * 8, b""],
                    [b"t" * 5_000, number(self.seq), b""],
                )
            )


class Times(Liar):
    """Lies about when something happened."""

    name = "times"

    def messages(self, payload: bytes) -> Iterator[Sequence[bytes]]:
        batch: Any = msgspec.msgpack.decode(payload)
        near = time.time() + self.rng.choice((-1e6, -86_400, -3_600, -5.1, 0, 4.9, 5.1, 3_600, 86_400, 1e9))
        at = self.rng.choice((*TIMES, near, near, near, int(near), None, "now"))
        if isinstance(batch, dict):
            batch["ts"] = at
        else:
            batch[0] = at
        yield self.numbered(msgspec.msgpack.encode(batch))


class Answers(Liar):
    """Loses batches, and lies when it is asked for them."""

    name = "answers"

    def messages(self, payload: bytes) -> Iterator[Sequence[bytes]]:
        message = self.numbered(payload)
        if self.rng.random() < 0.9:
            yield message

    def answers(self, first: int) -> Iterator[Sequence[bytes]]:
        known = list(self.buffer)
        kind = self.rng.randrange(8)
        if kind == 0:
            known = [(seq + 1, payload) for seq, payload in known]
        elif kind == 1:
            self.rng.shuffle(known)
        elif kind == 2:
            known = [(seq, self.mutants.mutant(seq)) for seq, _ in known]
        elif kind == 3:
            known = [(self.rng.choice((*NUMBERS, first, first - 1)), payload) for _, payload in known]
        elif kind == 4:
            known *= 3
        elif kind == 5:  # far more than it has published
            payload = self.payloads[0]
            yield from ([b"", number(first + n), payload] for n in range(FLOOD_MESSAGES))
        elif kind == 6:
            yield from ([b""], [b"", bytes(7), b""], [b"", b"x"], [bytes(8)] * 9)
        for seq, payload in known:
            yield [b"", *[b"kv"] * self.rng.randrange(3), number(seq), payload]
        if self.rng.random() < 0.6:
            yield END


LIARS = (Payloads, Numbers, Times, Answers)
