"""Engines with every trouble, that remember each batch of each of their lives."""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec
import zmq

from pipeline.simulator.publisher import Publisher, PublisherSettings
from schemas.settings import Replica

ANYWHERE = "tcp://127.0.0.1:0"
TROUBLES = (
    "drops",
    "restarts",
    "skips",
    "holes",
    "no end marker",
    "slow replay",
    "short buffer",
    "late join",
    "no replay",
    "unreachable replay",
    "silent end",
)
_hashes = itertools.count(1)
"""Every fresh block of the whole fleet has a hash of its own, so content tells life and number."""


class _SlowPublisher(Publisher):
    """Takes its time over each batch of a replay: slower than live."""

    def _answer(self, router: zmq.Socket[bytes], identity: bytes, first: int) -> None:
        class Slow:
            @staticmethod
            def send_multipart(frames: Sequence[bytes]) -> None:
                time.sleep(0.004)
                router.send_multipart(frames)

        super()._answer(Slow, identity, first)  # type: ignore[arg-type]


@dataclass
class Life:
    """One life of an engine: what each batch did, by sequence number."""

    operations: dict[int, list[tuple[str, tuple[int, ...]]]] = field(default_factory=dict)
    last_seq: int = -1


class TroubledEngine:
    """An engine on real sockets; everything is called by the thread that publishes."""

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        name: str,
        trouble: str,
        frames: Literal[2, 3],
        port: int,
    ) -> None:
        """`port`: nobody listens there."""
        self.name = name
        self.trouble = trouble
        self._unreachable = f"tcp://127.0.0.1:{port}"
        self.holes = frozenset(range(40, 10_000, 37)) if trouble == "holes" else frozenset()
        self.buffer = 20 if trouble in ("short buffer", "late join") else 10_000
        settings = PublisherSettings(
            ANYWHERE,
            None if trouble in ("no replay", "unreachable replay") else ANYWHERE,
            buffer_steps=self.buffer,
            replay_frames=frames,
            replay_end=trouble != "no end marker",
            replay_holes=self.holes,
        )
        kind = _SlowPublisher if trouble == "slow replay" else Publisher
        self.publisher = kind(settings, context)
        self.lives = [Life()]
        self.skipped: set[int] = set()
        """Of the present life."""
        self.ended = False
        self._held: list[int] = []

    @property
    def replica(self) -> Replica:
        replay = self.publisher.replay_endpoint
        return Replica(
            id=self.name,
            model="m",
            endpoint=self.publisher.endpoint,
            replay_endpoint=self._unreachable if self.trouble == "unreachable replay" else replay,
        )

    @property
    def answers(self) -> bool:
        return self.publisher.replay_endpoint is not None

    @property
    def forgets(self) -> bool:
        """Whether its buffer is too short to tell always whether a life goes on."""
        return self.answers and self.buffer < 10_000

    def publish(self, rng: random.Random) -> None:
        """One batch: fresh blocks, sometimes another copy of a known one, and removals."""
        if self.ended:
            return
        stored = [next(_hashes) for _ in range(rng.randint(1, 3))]
        again = rng.sample(self._held, min(len(self._held), rng.randint(0, 1)))
        operations = [("stored", (one,)) for one in (*stored, *again)]
        self._held += [*stored, *again]
        if len(self._held) > 50:
            rng.shuffle(self._held)
            operations.append(("removed", tuple(self._held.pop() for _ in range(rng.randint(1, 6)))))
        events: list[Any] = [
            ["BlockStored", list(hashes), None, [1, 2], 2, None, "GPU", None]
            if kind == "stored"
            else ["BlockRemoved", list(hashes), "GPU"]
            for kind, hashes in operations
        ]
        if self.publisher.published in self.holes:
            self.publisher.drop_next(1)
        seq = self.publisher.publish(msgspec.msgpack.encode([time.time(), events, 0]))
        self.lives[-1].operations[seq] = operations
        self.lives[-1].last_seq = seq

    def suffer(self, rng: random.Random) -> str:
        """Do what this engine is prone to; return what it was."""
        if self.ended:
            return "nothing: ended"
        if self.trouble == "restarts" or (self.answers and rng.random() < 0.1):
            self.publisher.restart()
            self.lives.append(Life())
            self._held, self.skipped = [], set()
            return "restart"
        if self.trouble == "skips":
            self.skipped.add(self.publisher.skip())
            return "skip"
        count = 45 if self.trouble == "short buffer" else rng.randint(1, 12)
        self.publisher.drop_next(count)
        return f"drop {count}"

    def end(self) -> None:
        """Fall silent for ever."""
        if not self.ended:
            self.ended = True
            self.publisher.close()

    def obtainable(self, seq: int) -> bool:
        """Whether the present life can still give this batch to who asks."""
        in_buffer = seq > self.lives[-1].last_seq - self.buffer
        return self.answers and in_buffer and seq not in self.skipped and seq not in self.holes


class Traffic:
    """Publishes and makes engines suffer, at seeded moments, until it is stopped."""

    def __init__(self, engines: Sequence[TroubledEngine], seed: int, seconds: float) -> None:
        self.said: list[str] = []
        self._engines = engines
        self._rng = random.Random(seed)
        self._seconds = seconds
        self._began: float | None = None
        self._thread = threading.Thread(target=self._run)

    def start(self) -> None:
        self._thread.start()

    def join(self) -> None:
        self._thread.join()

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    @property
    def time_for_kills(self) -> bool:
        return self._began is not None and time.monotonic() < self._began + self._seconds

    def _run(self) -> None:
        rng = self._rng
        for engine in self._engines:
            for _ in range(60 if engine.trouble == "late join" else rng.randint(0, 5)):
                engine.publish(rng)
        self._wait_read()
        began = self._began = time.monotonic()
        while (passed := time.monotonic() - began) < self._seconds:
            for engine in self._engines:
                if rng.random() < 0.8:
                    engine.publish(rng)
                if rng.random() < 0.006:
                    self.said.append(f"{passed:6.2f} {engine.name}: {engine.suffer(rng)}")
                if engine.trouble == "silent end" and passed > self._seconds * 0.6:
                    engine.end()
            time.sleep(0.04)
        # The connector may have been killed just now. Of what comes, some is dropped, and its end is seen.
        self._wait_read()
        for _ in range(60):
            for engine in self._engines:
                engine.publish(rng)
            time.sleep(0.01)

    def _wait_read(self) -> None:
        """Return when a connector has subscribed to every engine that lives."""
        while any(not engine.ended and not engine.publisher.subscribers for engine in self._engines):
            time.sleep(0.05)
