"""What an engine may do with a request for a replay besides answering it: a publisher with moods."""

from __future__ import annotations

import itertools
import time
from typing import Literal

import msgspec
import zmq

from pipeline.simulator.publisher import END_SEQUENCE, Publisher

Mood = Literal["honest", "slow", "silent", "lies", "numbers", "floods"]
"""honest: as vLLM. slow: slower than live. silent: no answer. lies: the right numbers, other contents.
numbers: numbers that nobody asked for, before and far behind. floods: contents without an end."""

_SLOW_SECONDS = 0.004
_FLOOD_SECONDS = 4.0
_FAR = 1_000_000
_lies = itertools.count(1 << 60)
"""Hashes that no engine ever stores."""


class MoodyPublisher(Publisher):
    """The sockets of an engine; `mood` may be changed at any time."""

    mood: Mood = "honest"

    def _answer(self, router: zmq.Socket[bytes], identity: bytes, first: int) -> None:
        mood = self.mood
        if mood == "honest":
            super()._answer(router, identity, first)
        elif mood == "slow":
            super()._answer(_Slow(router), identity, first)  # type: ignore[arg-type]
        elif mood == "lies":
            self._send(router, identity, range(first, self.published))
        elif mood == "numbers":
            self._send(router, identity, [*range(max(0, first - 20), first), *range(_FAR, _FAR + 20)])
        elif mood == "floods":
            self._flood(router, identity, first)

    def _send(self, router: zmq.Socket[bytes], identity: bytes, numbers: range | list[int]) -> None:
        for number in numbers:
            router.send_multipart((*self._head(identity), number.to_bytes(8, "big"), _lie()))
        router.send_multipart((*self._head(identity), END_SEQUENCE, b""))

    def _flood(self, router: zmq.Socket[bytes], identity: bytes, first: int) -> None:
        # The queue of a ROUTER is unbounded here, so that the flood has to be.
        end = time.monotonic() + _FLOOD_SECONDS
        for number in itertools.count(first):
            if time.monotonic() > end or self.mood != "floods":
                return
            router.send_multipart((*self._head(identity), number.to_bytes(8, "big"), _lie()))
            if number % 100 == 0:
                time.sleep(0.01)

    def _head(self, identity: bytes) -> tuple[bytes, ...]:
        return (identity, b"") if self.settings.replay_frames == 2 else (identity, b"", b"")


class _Slow:
    """A ROUTER that takes its time over each message."""

    def __init__(self, router: zmq.Socket[bytes]) -> None:
        self._router = router

    def send_multipart(self, frames: tuple[bytes, ...]) -> None:
        time.sleep(_SLOW_SECONDS)
        self._router.send_multipart(frames)


def _lie() -> bytes:
    return msgspec.msgpack.encode(
        [time.time(), [["BlockStored", [next(_lies)], None, [1, 2], 2, None, "GPU", None]], 0]
    )
