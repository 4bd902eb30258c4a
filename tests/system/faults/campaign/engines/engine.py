"""Engines with every trouble, that remember each batch of each of their lives."""

from __future__ import annotations

import itertools
import random
import time
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec
import zmq

from pipeline.simulator.publisher import PublisherSettings
from schemas.discovery_settings import Replica
from tests.system.faults.campaign.engines.replays import Mood, MoodyPublisher

TROUBLES = (
    "none",
    "holes",
    "no end marker",
    "slow replay",
    "short buffer",
    "late join",
    "no replay",
    "unreachable replay",
    "silent end",
)
"""What is wrong with an engine all the time; all of them suffer drops, skips and restarts besides."""
LONG_BUFFER, SHORT_BUFFER = 10_000, 20
LATE_JOIN_BATCHES = 60
_RELEASE_SECONDS = 60.0
_hashes = itertools.count(1)
"""Every fresh block of the whole fleet has a hash of its own, so content tells life and number."""

Operations = list[tuple[str, tuple[int, ...]]]
"""(stored or removed, hashes), in order."""


@dataclass
class Life:
    """One life of an engine: what each batch did, by sequence number."""

    operations: dict[int, Operations] = field(default_factory=dict)
    last_seq: int = -1
    skipped: set[int] = field(default_factory=set)
    """Numbers without a batch."""
    unanswered: bool = False
    """Some requests for replays got no answer, so batches may be given up that the engine still has."""
    lied: bool = False
    """Replays had other contents than the batches, so nobody can know the truth."""


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
        """Listens on `port` and the next one, and nobody on the one after that."""
        self.name = name
        self.trouble = trouble
        self.holes = frozenset(range(40, 100_000, 37)) if trouble == "holes" else frozenset()
        self.buffer = SHORT_BUFFER if trouble in ("short buffer", "late join") else LONG_BUFFER
        self.lives = [Life()]
        self.ended = False
        self._context = context
        self._settings = PublisherSettings(
            f"tcp://127.0.0.1:{port}",
            f"tcp://127.0.0.1:{port + 1}" if self.answers else None,
            buffer_steps=self.buffer,
            replay_frames=frames,
            replay_end=trouble != "no end marker",
            replay_holes=self.holes,
        )
        self._unreachable = f"tcp://127.0.0.1:{port + 2}"
        self._held: list[int] = []
        self._publisher: MoodyPublisher | None = None
        self._open()

    @property
    def replica(self) -> Replica:
        replay = self._unreachable if self.trouble == "unreachable replay" else self._settings.replay_endpoint
        return Replica(id=self.name, model="m", endpoint=self._settings.endpoint, replay_endpoint=replay)

    @property
    def answers(self) -> bool:
        """Whether anybody listens where replays are asked for."""
        return self.trouble not in ("no replay", "unreachable replay")

    @property
    def forgets(self) -> bool:
        """Whether its buffer is too short to tell always whether a life goes on."""
        return self.answers and self.buffer < LONG_BUFFER

    @property
    def subscribed(self) -> bool:
        return self._publisher is not None and self._publisher.subscribers > 0

    def publish(self, rng: random.Random) -> None:
        """One batch: fresh blocks, sometimes another copy of a known one, and removals."""
        if self._publisher is None:
            return
        stored = [next(_hashes) for _ in range(rng.randint(1, 3))]
        again = rng.sample(self._held, min(len(self._held), rng.randint(0, 1)))
        operations: Operations = [("stored", (one,)) for one in (*stored, *again)]
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
        if self._publisher.published in self.holes:
            self._publisher.drop_next(1)
        seq = self._publisher.publish(msgspec.msgpack.encode([time.time(), events, 0]))
        self.lives[-1].operations[seq] = operations
        self.lives[-1].last_seq = seq

    def drop(self, count: int) -> None:
        """Lose the next batches on the way out; replays still have them."""
        if self._publisher is not None:
            self._publisher.drop_next(count)

    def skip(self) -> None:
        """Use up a number without a batch."""
        if self._publisher is not None:
            self.lives[-1].skipped.add(self._publisher.skip())

    def restart(self) -> None:
        """Begin a new life on the same connections."""
        if self._publisher is not None:
            self._publisher.restart()
            self._begin_life()
            self.feel(self._publisher.mood)

    def die(self) -> None:
        """Close the sockets, as the end of the process does."""
        if self._publisher is not None:
            self._publisher.close()
            self._publisher = None

    def rise(self) -> None:
        """Begin a new life on the same addresses."""
        if self._publisher is None and not self.ended:
            self._begin_life()
            deadline = time.monotonic() + _RELEASE_SECONDS
            while self._publisher is None:
                try:
                    self._open()
                except OSError:  # ZMQ closes sockets in a thread of its own
                    if time.monotonic() > deadline:
                        raise
                    time.sleep(0.02)

    def end(self) -> None:
        """Fall silent for ever."""
        self.ended = True
        self.die()

    def feel(self, mood: Mood) -> None:
        """Answer requests for replays in this mood from now on."""
        if self._publisher is None:
            return
        self._publisher.mood = mood
        life = self.lives[-1]
        life.unanswered |= mood == "silent"
        life.lied |= mood in ("lies", "numbers", "floods")

    def obtainable(self, seq: int) -> bool:
        """Whether the present life can still give this batch to who asks."""
        life = self.lives[-1]
        in_buffer = seq > life.last_seq - self.buffer
        given = in_buffer and seq not in life.skipped and seq not in self.holes
        return self.answers and given and not life.unanswered

    def _begin_life(self) -> None:
        self.lives.append(Life())
        self._held = []

    def _open(self) -> None:
        self._publisher = MoodyPublisher(self._settings, self._context)
        if self.trouble == "slow replay":
            self._publisher.mood = "slow"
