"""Traffic of all engines, from one thread, until it is stopped."""

from __future__ import annotations

import queue
import random
import threading
import time
from collections.abc import Callable, Sequence

from tests.system.faults.campaign.engines.engine import LATE_JOIN_BATCHES, TroubledEngine

_ROUND_SECONDS = 0.08
_LAST_ROUNDS = 60
_READ_SECONDS = 120.0
_TROUBLE = 0.002
"""Chance of an engine to suffer something in a round."""


class NobodyReads(AssertionError):
    """No connector subscribed to these engines in time."""


class Traffic:
    """Publishes, and makes engines suffer at seeded moments; `do` acts on engines between two rounds."""

    def __init__(self, engines: Sequence[TroubledEngine], seed: int) -> None:
        self._engines = engines
        self._rng = random.Random(seed)
        self._to_do: queue.SimpleQueue[tuple[Callable[[], None], threading.Event]] = queue.SimpleQueue()
        self._stopping = threading.Event()
        self._abandoned = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="traffic", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def do(self, act: Callable[[], None], seconds: float = 60.0) -> None:
        """Run something in the thread of the engines; returns when it is done."""
        done = threading.Event()
        self._to_do.put((act, done))
        if not done.wait(seconds):
            raise AssertionError(f"the traffic did not get to it within {seconds:.0f} s: {self._failure!r}")

    def stop(self) -> None:
        """Return when connectors read everything and the last batches are published. Raises NobodyReads."""
        self._stopping.set()
        self._thread.join(2 * _READ_SECONDS)
        if self._failure is not None:
            raise self._failure
        assert not self._thread.is_alive(), "the traffic did not end"

    def abandon(self) -> None:
        """End at once, whoever reads."""
        self._abandoned.set()
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(_READ_SECONDS)

    def _run(self) -> None:
        try:
            self._publish_all()
        except BaseException as error:
            self._failure = error

    def _publish_all(self) -> None:
        rng = self._rng
        for engine in self._engines:
            for _ in range(LATE_JOIN_BATCHES if engine.trouble == "late join" else rng.randint(0, 5)):
                engine.publish(rng)
        while not self._stopping.is_set():
            for engine in self._engines:
                if rng.random() < 0.8:
                    engine.publish(rng)
                if rng.random() < _TROUBLE:
                    self._trouble(engine)
            self._do_what_waits()
            time.sleep(_ROUND_SECONDS)
        # The connector may have been killed just now. Of what comes, some is dropped, and its end is seen.
        self._wait_read()
        for _ in range(_LAST_ROUNDS):
            for engine in self._engines:
                engine.publish(rng)
            time.sleep(0.01)
        for engine in self._engines:  # nobody can know of a batch that is lost when none comes after it
            if engine.lives[-1].last_seq in engine.holes:
                engine.publish(rng)

    def _trouble(self, engine: TroubledEngine) -> None:
        what = self._rng.choice(("drops", "drops", "skips", "restarts"))
        if what == "drops":
            engine.drop(self._rng.randint(1, 45))
        elif what == "skips":
            engine.skip()
        else:
            engine.restart()

    def _do_what_waits(self) -> None:
        while not self._to_do.empty():
            act, done = self._to_do.get()
            act()
            done.set()

    def _wait_read(self) -> None:
        """Return when a connector has subscribed to every engine that lives."""
        deadline = time.monotonic() + _READ_SECONDS
        while unread := [one.name for one in self._engines if not one.ended and not one.subscribed]:
            if time.monotonic() > deadline or self._abandoned.is_set():
                raise NobodyReads(", ".join(unread))
            time.sleep(0.05)
