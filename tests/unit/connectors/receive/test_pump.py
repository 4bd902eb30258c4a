"""What comes together is gathered at once, and everything else of a source keeps its order."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Container, Iterator, Sequence
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from connectors.frames.bundle import MESSAGE_SEQ, Bundle, Bundles
from connectors.receive import pump as pump_module
from connectors.receive.crowd import LEAST_SOURCES, LOOK_SECONDS
from connectors.receive.pump import Pump
from connectors.receive.received import Key, Received, Together
from connectors.sources import SourceKey

SOURCES: list[SourceKey] = [(f"r{number}", 0) for number in range(5)]


def messages(first: int, count: int) -> Bundle:
    return Bundle.of((b"", seq.to_bytes(8, "big"), b"x" * 100) for seq in range(first, first + count))


def together(bundles: dict[SourceKey, Bundle]) -> Together:
    sizes = [bundle.size for bundle in bundles.values()]
    side_by_side = Bundles(
        np.concatenate([bundle.data for bundle in bundles.values()]),
        np.concatenate([bundle.table for bundle in bundles.values()], axis=1),
        np.cumsum([len(bundle) for bundle in bundles.values()]),
        np.cumsum([0, *sizes])[:-1],
    )
    overhead = 200 * side_by_side.messages
    return Together(list(bundles), side_by_side, 1.0, sum(sizes) + overhead)


class Subscriber:
    """Hands over what was put in, a little at a time."""

    def __init__(self, arrived: list[Received | Together], rng: random.Random) -> None:
        self._to_come = deque(arrived)
        self._arrived: deque[Received | Together] = deque()
        self._rng = rng
        self.free = 1 << 20
        self.hand_over = self

    @property
    def ended(self) -> bool:
        return not self._to_come

    @property
    def waiting_messages(self) -> int:
        return len(self._arrived)

    def take(self) -> Received | Together | None:
        return self._arrived.popleft() if self._arrived else None

    def arrive(self) -> None:
        for _ in range(min(self._rng.randrange(4), len(self._to_come))):
            self._arrived.append(self._to_come.popleft())

    async def wait(self, seconds: float | None) -> None:
        self.arrive()


class Dealer:
    """Notes the order in which each source's messages are dealt with; some are never gathered."""

    def __init__(self, subscriber: Subscriber, rng: random.Random) -> None:
        self.dealt: dict[Key, list[int]] = {source: [] for source in SOURCES}
        self.gathered = self.in_turn = 0
        self._subscriber = subscriber
        self._rng = rng

    def deal(self, portions: Sequence[Received]) -> Iterator[float]:
        for received in portions:
            self.dealt[received.source] += received.messages.table[MESSAGE_SEQ].tolist()
            self.in_turn += 1
            self._subscriber.arrive()
            yield 0.0001

    def gather(self, together: Together, waiting: Container[Key]) -> tuple[list[Received], float]:
        rest = []
        for number, source in enumerate(together.sources):
            received = together.of(number)
            if source in waiting or self._rng.random() < 0.3:
                rest.append(received)
            else:
                self.dealt[source] += received.messages.table[MESSAGE_SEQ].tolist()
                self.gathered += 1
        return rest, 0.0001


def run(subscriber: Subscriber, dealer: Dealer) -> None:
    async def room() -> None:
        await asyncio.sleep(0)

    pump = Pump(
        cast(Any, subscriber),
        deal=dealer.deal,
        gather=dealer.gather,
        room=room,
        paused=lambda source: None,
    )
    asyncio.run(asyncio.wait_for(pump.run(), 60))


def test_the_messages_of_a_source_keep_their_order() -> None:
    gathered = in_turn = 0
    for seed in range(20):
        rng = random.Random(seed)
        numbers = dict.fromkeys(SOURCES, 0)

        def next_of(source: SourceKey, count: int, numbers: dict[SourceKey, int] = numbers) -> Bundle:
            numbers[source] += count
            return messages(numbers[source] - count, count)

        arrived: list[Received | Together] = []
        for _ in range(200):
            if rng.random() < 0.9:
                some = rng.sample(SOURCES, rng.randrange(1, len(SOURCES) + 1))
                arrived.append(together({source: next_of(source, rng.randrange(1, 3)) for source in some}))
            else:
                source = rng.choice(SOURCES)
                bundle = next_of(source, rng.randrange(1, 400))
                arrived.append(Received(source, bundle, 1.0, bundle.size + 200 * len(bundle)))
        subscriber = Subscriber(arrived, rng)
        dealer = Dealer(subscriber, rng)
        run(subscriber, dealer)
        assert dealer.dealt == {source: list(range(count)) for source, count in numbers.items()}
        gathered += dealer.gathered
        in_turn += dealer.in_turn
    assert min(gathered, in_turn) > 100


def test_a_waiting_source_is_seen_and_a_gathered_one_does_not_wait() -> None:
    rng = random.Random(1)
    first, second, third = SOURCES[:3]
    one = messages(0, 1)
    subscriber = Subscriber(
        [Received(first, one, 1.0, one.size + 200), together({first: messages(1, 1), second: one})], rng
    )
    dealer = Dealer(subscriber, cast(random.Random, Always()))

    async def room() -> None: ...

    pump = Pump(
        cast(Any, subscriber), deal=dealer.deal, gather=dealer.gather, room=room, paused=lambda source: None
    )
    while not subscriber.ended:
        subscriber.arrive()
    assert pump.behind(first)
    assert not pump.behind(second)
    assert not pump.behind(third)
    assert dealer.dealt[second] == [0]
    assert dealer.dealt[first] == []


def test_a_crowd_has_its_turn_before_more_comes_to_wait() -> None:
    crowd: list[SourceKey] = [(f"r{number}", 0) for number in range(2 * LEAST_SOURCES)]
    first = [Received(source, messages(0, 1), 1.0, 300) for source in crowd]
    later = [together({source: messages(seq, 1) for source in crowd}) for seq in range(1, 101)]
    rng = random.Random(1)
    subscriber = Subscriber([*first, *later], rng)
    dealer = Dealer(subscriber, cast(random.Random, Always()))
    dealer.dealt = {source: [] for source in crowd}
    while subscriber.waiting_messages < len(first):
        subscriber.arrive()
    # More comes at each turn: whoever collects it at once lets it wait behind what waits.
    run(subscriber, dealer)
    assert dealer.dealt == {source: [*range(101)] for source in crowd}
    assert dealer.gathered > 90 * len(crowd)


def test_a_crowd_with_much_to_do_has_its_turn_first_too(monkeypatch: pytest.MonkeyPatch) -> None:
    crowd: list[SourceKey] = [(f"r{number}", 0) for number in range(LEAST_SOURCES)]
    many = 100
    first = [Received(source, messages(0, many), 1.0, 300 * many) for source in crowd]
    later = [together({source: messages(seq, 1) for source in crowd}) for seq in range(many, many + 100)]
    subscriber = Subscriber([*first, *later], random.Random(1))
    clock = SimpleNamespace(seconds=0.0)
    monkeypatch.setattr(pump_module, "time", SimpleNamespace(monotonic=lambda: clock.seconds))

    class Slow(Dealer):
        def deal(self, portions: Sequence[Received]) -> Iterator[float]:
            for number, seconds in enumerate(super().deal(portions)):
                clock.seconds += 0.001 * len(portions[number].messages)
                yield 10 * seconds * len(portions[number].messages)

    dealer = Slow(subscriber, cast(random.Random, Always()))
    dealer.dealt = {source: [] for source in crowd}
    while subscriber.waiting_messages < len(first):
        subscriber.arrive()
    run(subscriber, dealer)
    assert dealer.dealt == {source: [*range(many + 100)] for source in crowd}
    assert clock.seconds > 3 * LOOK_SECONDS, "it takes longer than from look to look"
    assert dealer.gathered > 80 * len(crowd)


class Always:
    """Chance that never says no."""

    def random(self) -> float:
        return 1.0
