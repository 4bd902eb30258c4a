"""Turns by measured time, on a clock of the test's own."""

from __future__ import annotations

import random

import numpy as np
import pytest

from connectors.frames.bundle import MESSAGE_SEQ, Bundle, Frames
from connectors.frames.portion import MAX_PORTION_BYTES, PORTION_SECONDS, REST_FROM_SECONDS, Portion
from connectors.receive.received import MESSAGE_OVERHEAD_BYTES, Received
from connectors.receive.turns import Turns
from connectors.sources import SourceKey


def received(name: str, payloads: list[bytes], first: int = 0) -> Received:
    bundle = Bundle.of([(b"", (first + n).to_bytes(8, "big"), payload) for n, payload in enumerate(payloads)])
    size = sum(map(len, payloads)) + MESSAGE_OVERHEAD_BYTES * len(payloads)
    return Received((name, 0), bundle, 0.0, size)


class Simulated:
    """Serves what arrives; a byte of a source costs as much as the test says."""

    def __init__(self, cost: dict[str, float]) -> None:
        self.turns = Turns()
        self.now = 100.0
        self.cost = cost
        self.served: list[tuple[float, SourceKey, list[bytes]]] = []
        self.seconds = dict.fromkeys(cost, 0.0)

    def add(self, one: Received) -> None:
        self.turns.add(one, self.now)

    def step(self) -> int:
        """Serve what comes next; return of how many sources."""
        self.now += self.turns.rest(self.now)
        portions = self.turns.next(self.now)
        for one in portions:
            name = one.source[0]
            assert isinstance(name, str)
            seconds = self.cost[name] * one.size
            self.now += seconds
            self.seconds[name] += seconds
            self.turns.took(one, seconds, self.now, rests=seconds)
            self.served.append((self.now, (name, 0), [frames[2] for frames in one.messages]))
        return len({one.source for one in portions})


def test_every_message_is_served_once_and_in_the_order_of_its_source() -> None:
    rng = random.Random(5)
    cost = {name: rng.choice((1e-9, 1e-7, 1e-5)) for name in "abcdef"}
    simulated = Simulated(cost)
    sent: dict[str, list[bytes]] = {name: [] for name in cost}
    for _ in range(300):
        name = rng.choice("abcdef")
        payloads = [rng.randbytes(rng.choice((0, 1, 500, 20_000))) for _ in range(rng.randrange(1, 30))]
        simulated.add(received(name, payloads))
        sent[name] += payloads
        if rng.random() < 0.3 and simulated.turns:
            simulated.step()
    while simulated.turns:
        simulated.step()
    found = {
        name: [p for _, key, some in simulated.served if key == (name, 0) for p in some] for name in cost
    }
    assert found == sent
    assert all(simulated.turns.bytes_of((name, 0)) == 0 for name in cost)


def test_what_a_replay_took_while_nothing_waited_is_not_held_against_its_source() -> None:
    simulated = Simulated({"a": 1e-6, "b": 1e-6})
    simulated.turns.charge(("a", 0), 60.0)
    for name in "ab":
        simulated.add(received(name, [bytes(1_000)] * 1_000))
    for _ in range(20):
        simulated.step()
    assert simulated.seconds["a"] == pytest.approx(simulated.seconds["b"], abs=2 * PORTION_SECONDS)


def test_a_cheap_source_waits_for_one_portion_of_a_costly_one_at_most() -> None:
    simulated = Simulated({"costly": 1e-6, "cheap": 1e-9})
    simulated.add(received("costly", [bytes(1_000)] * 20_000))
    simulated.step()  # cut before anything is known of its cost
    worst = 0.0
    for _ in range(200):
        came = simulated.now
        simulated.add(received("cheap", [b"x"]))
        while simulated.turns.bytes_of(("cheap", 0)):
            simulated.step()
        worst = max(worst, simulated.now - came)
        simulated.step()
    assert worst < 2 * PORTION_SECONDS
    assert simulated.seconds["costly"] > 0.9 * (simulated.now - 100.0)


def test_sources_that_want_more_than_there_is_get_the_same_time() -> None:
    cost = {"a": 1e-6, "b": 1e-8, "c": 3e-7}
    simulated = Simulated(cost)
    for name in cost:
        simulated.add(received(name, [bytes(1_000)] * 200_000))
    while simulated.now < 101.0:
        simulated.step()
    assert max(simulated.seconds.values()) < 1.2 * min(simulated.seconds.values())


def test_a_source_that_was_away_starts_level_with_the_others() -> None:
    simulated = Simulated({"a": 1e-6, "late": 1e-6})
    simulated.add(received("a", [bytes(1_000)] * 20_000))
    for _ in range(1_000):
        simulated.step()
    simulated.add(received("late", [bytes(1_000)] * 20_000))
    before = dict(simulated.seconds)
    for _ in range(100):
        simulated.step()
    had = {name: simulated.seconds[name] - before[name] for name in before}
    assert had["late"] == pytest.approx(had["a"], rel=0.1)


def test_many_cheap_sources_are_served_at_once_and_never_with_more_than_a_portion() -> None:
    names = [f"cheap-{number}" for number in range(100)]
    simulated = Simulated({"costly": 1e-6} | dict.fromkeys(names, 1e-9))
    for name in simulated.cost:
        simulated.add(received(name, [bytes(1_000)]))
        assert simulated.step() == 1  # nothing is known of it
    simulated.add(received("costly", [bytes(1_000)] * 1_000))
    for name in names:
        simulated.add(received(name, [bytes(400)]))
    together = []
    while simulated.turns:
        began = simulated.now
        together.append(simulated.step())
        assert simulated.now - began < 1.01 * PORTION_SECONDS
    assert max(together) > 90


def test_a_source_that_had_more_is_not_served_with_those_that_had_less() -> None:
    cost = {"costly": 1e-6, "a": 2e-7, "b": 2e-7}
    simulated = Simulated(cost)
    for name in cost:
        simulated.add(received(name, [bytes(1_000)]))
        simulated.step()
    simulated.add(received("a", [bytes(100)] * 2_000))
    simulated.add(received("b", [bytes(100)] * 2_000))
    simulated.add(received("costly", [bytes(1_000)] * 50))
    simulated.step()
    while simulated.turns.bytes_of(("costly", 0)):
        simulated.step()
    others = simulated.seconds["a"], simulated.seconds["b"]
    assert min(others) > simulated.seconds["costly"] - 2 * PORTION_SECONDS


def test_a_source_rests_after_a_long_message() -> None:
    simulated = Simulated({"long": 1e-6, "other": 1e-9})
    simulated.add(received("long", [bytes(300_000)] * 2))
    simulated.step()
    assert simulated.turns.rest(simulated.now) == pytest.approx(300_200e-6)
    assert REST_FROM_SECONDS < 300_200e-6
    simulated.add(received("other", [b"x"]))
    assert simulated.turns.rest(simulated.now) == 0.0
    simulated.step()
    assert simulated.served[-1][1] == ("other", 0)
    simulated.step()
    assert simulated.served[-1][:2] == (pytest.approx(100.0 + 3 * 300_200e-6), ("long", 0))


def test_portions_follow_the_highest_cost() -> None:
    portion = Portion()
    portion.took(100_000, 0.1)
    assert portion.bytes == int(PORTION_SECONDS / 1e-6)
    portion.took(5_000, 0.0)
    assert portion.bytes < 2 * PORTION_SECONDS / 1e-6
    for _ in range(300):
        portion.took(5_000, 0.0)
    assert portion.bytes == MAX_PORTION_BYTES


def test_the_parts_of_a_bundle_are_the_bundle() -> None:
    rng = random.Random(9)
    for _ in range(200):
        messages: list[Frames] = [
            rng.choice(
                (
                    (b"", n.to_bytes(8, "big"), rng.randbytes(rng.choice((0, 1, 90)))),
                    (b"", n.to_bytes(8, "big"), rng.randbytes(30)),
                    (b"odd", b"", b"", rng.randbytes(3)),
                )
            )
            for n in range(rng.randrange(1, 12))
        ]
        bundle = Bundle.of(messages)
        first, others = bundle.split(rng.randrange(400), 50)
        assert len(first) >= 1
        assert [*first, *others] == [*bundle] == messages
        assert first.size + others.size == bundle.size
        assert np.array_equal(
            np.concatenate((first.table[MESSAGE_SEQ], others.table[MESSAGE_SEQ])), bundle.table[MESSAGE_SEQ]
        )


def test_messages_let_go_one_after_the_other_are_one_entry() -> None:
    turns = Turns()
    let_go = Received(("peer", 0), Bundle.of([]), 0.0, 0, left_out=3)
    for one in (let_go, let_go, received("peer", [b"x"]), let_go):
        turns.add(one, 0.0)
    entries = []
    while turns:
        for one in turns.next(0.0):
            entries.append((one.left_out, len(one.messages)))
            turns.took(one, 0.0, 0.0)
    assert entries == [(6, 0), (0, 1), (3, 0)]
