"""An engine: a cache of blocks that tells what happens to it, keeps batches, restarts and lies."""

from __future__ import annotations

import hashlib
import random
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from connectors.frames.bundle import Frames
from tests.simulation.loop import Process
from tests.simulation.simulation import Simulation

BLOCK_TOKENS = 16
_BRIEFLY, _BETWEEN_SECONDS = 0.01, 1e-4
_encode = msgspec.msgpack.Encoder().encode


def block(*path: int) -> int:
    """Return the hash of the block at the end of a path of prompts."""
    digest = hashlib.blake2b(repr(path).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") or 1


class Engine:
    """One data-parallel rank."""

    def __init__(self, simulation: Simulation, name: str, *, capacity: int, keeps: int) -> None:
        """`capacity`: blocks. `keeps`: batches for replay."""
        self.name = name
        self.up = True
        self.published: list[tuple[float, bytes]] = []
        """Timestamp and payload by number, of the present life."""
        self.life = 0
        self.lied = False
        """Whether what it publishes is no longer what it holds."""
        self.resident: OrderedDict[int, int] = OrderedDict()
        """Parents of the blocks it holds, least recently used first."""
        self.subscribers: dict[Process, Callable[[Frames], None]] = {}
        self.drops = 0
        """So many of the next batches reach nobody."""
        self.deaf_until = 0.0
        self.holes = 0
        """So many batches are missing in the next answer."""
        self.clock_ahead = 0.0
        self._simulation = simulation
        self._capacity = capacity
        self._kept: deque[tuple[int, bytes]] = deque(maxlen=keeps)
        self._reaches: dict[Process, float] = {}

    # What it does

    def serve(self, rng: random.Random, prompts: int) -> list[int]:
        """Compute a prompt, and return it."""
        path = [rng.randrange(prompts)]
        path += [rng.randrange(2) for _ in range(rng.randrange(5))]
        self.store(path)
        return path

    def store(self, path: Sequence[int]) -> None:
        """Have a prompt: what is lacking is stored, and what has no room leaves."""
        events: list[Any] = []
        parent, missing, parent_of_missing = 0, list[int](), 0
        chain = [block(*path[: depth + 1]) for depth in range(len(path))]
        for one in chain:
            if one in self.resident and not missing:
                self.resident.move_to_end(one)
                parent = one
            elif one not in self.resident:
                if not missing:
                    parent_of_missing = parent
                missing.append(one)
                self.resident[one] = parent
                parent = one
            else:
                break
        while len(self.resident) > self._capacity:
            parents = {*self.resident.values(), *chain}
            leaf = next((one for one in self.resident if one not in parents), None)
            if leaf is None:
                break
            del self.resident[leaf]
            events.append(["BlockRemoved", [leaf], "GPU", 0])
        if missing:
            events.append(_stored(missing, parent_of_missing or None))
        self.publish(events)

    def clear(self) -> None:
        """Drop everything."""
        self.resident.clear()
        self.publish([["AllBlocksCleared"]])

    def lie(self, rng: random.Random) -> None:
        """Publish what is not so, or what nobody can read."""
        self.lied = True
        some = block(rng.randrange(6))
        kind = rng.randrange(6)
        if kind == 0:
            self.publish([["BlockRemoved", [block(9, rng.randrange(99))], "GPU", 0]])
        elif kind == 1:
            self.publish([_stored([some], None), _stored([some], None)])
        elif kind == 2:
            self.publish([_stored([some], None, tokens=8 * rng.randrange(1, 4))])
        elif kind == 3:
            self.publish([["BlockStored", "nonsense"], ["Unheard"]])
        elif kind == 4:
            self._send(rng.randbytes(rng.randrange(1, 40)), self._now())
        else:
            self.publish([_stored([some], None)], ahead=rng.choice([-1e6, -40.0, 20.0, 1e6]))

    def bite(self, rng: random.Random) -> None:
        """Store fine blocks and the coarse ones of four of them, as hybrid engines do, or what none does: a
        chain that bites its own tail."""
        self.lied = True
        first = 1 + 100 * rng.randrange(3)
        honest = [*range(first, first + rng.randrange(4, 9))]
        coarse = [9000 + first + at for at in range(len(honest) // 4)]
        self.publish([_stored(honest, None), _stored(coarse, None, tokens=64)])
        if rng.random() < 0.6:
            biting = [*range(first + 50, first + 50 + rng.randrange(1, 6))]
            coarse = [biting[-1]]
            self.publish([_stored(biting, biting[-1]), _stored(coarse, None, tokens=64)])
        if rng.random() < 0.7:
            self.publish([["BlockRemoved", coarse, "GPU", 0]])

    def restart(self, seconds: float, clock_step: float = 0.0) -> None:
        """Lose everything and come back after a while, with numbers that begin at 0."""
        self.up = False
        self.resident.clear()
        self.published.clear()
        self._kept.clear()
        self.life += 1
        self.clock_ahead += clock_step
        life = self.life

        def back() -> None:
            self.up = self.up or life == self.life

        self._simulation.at(self._simulation.now + seconds, back)

    # How it says so

    def publish(self, events: Sequence[Any], ahead: float = 0.0) -> None:
        """Publish a batch; some of those that listen get it. No two are of one moment."""
        at, last = self._now() + ahead, self.published[-1][0] if self.published else 0.0
        if at <= last < at + _BRIEFLY:
            at = last + _BETWEEN_SECONDS
        self._send(_encode([at, events, 0]), at)

    def _now(self) -> float:
        return self._simulation.wall() + self.clock_ahead

    def _send(self, payload: bytes, at: float) -> None:
        seq = len(self.published)
        self.published.append((at, payload))
        self._kept.append((seq, payload))
        # Nobody could know of a restart of which the first numbers are lost, and the next is the one due.
        if self.drops and seq:
            self.drops -= 1
            return
        world = self._simulation
        frames = (b"", seq.to_bytes(8, "big"), payload)
        for process, tell in [*self.subscribers.items()]:
            if not process.alive:
                del self.subscribers[process]
                continue
            reaches = max(self._reaches.get(process, 0.0) + 1e-6, world.now + world.latency())
            self._reaches[process] = reaches
            process.call_at(reaches, tell, frames)

    def replay(self, first: int) -> tuple[list[tuple[int, bytes]], bool] | None:
        """Return what is kept from a number on, and whether the answer ends; None for no answer."""
        if not self.up or self._simulation.now < self.deaf_until:
            return None
        answer = [(seq, payload) for seq, payload in self._kept if seq >= first]
        while self.holes and len(answer) > 2:
            self.holes -= 1
            del answer[len(answer) // 2]
        return answer, True


def _stored(blocks: Sequence[int], parent: int | None, tokens: int = BLOCK_TOKENS) -> Any:
    ids = [*range(tokens * len(blocks))]
    return ["BlockStored", blocks, parent, ids, tokens, None, "GPU", None, [None] * len(blocks), 0]
