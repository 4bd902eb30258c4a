"""Processes of the simulator: what becomes of them at an await, and what others see of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from tests.simulation.loop import Line, Process, World


def _counting(process: Process, counted: list[int], finished: list[str]) -> None:
    async def count() -> None:
        try:
            for number in range(100):
                counted.append(number)
                await asyncio.sleep(1.0)
        finally:
            finished.append("finally")

    process.call_soon(lambda: setattr(process, "main", process.create_task(count())))


def test_time_passes_only_when_nobody_has_anything_to_do() -> None:
    world, counted = World(1), list[int]()
    _counting(Process(world, "one"), counted, [])
    world.run(10.5)
    assert counted == [*range(11)]
    assert world.now == 10.5


def test_a_killed_process_runs_nothing_any_more() -> None:
    world, counted, finished = World(1), list[int](), list[str]()
    process, ended = Process(world, "one"), list[float]()
    process.on_end = lambda: ended.append(world.now)
    _counting(process, counted, finished)
    world.run(3.5)
    process.kill()
    world.run(10.0)
    assert counted == [0, 1, 2, 3]
    assert finished == []
    assert ended == [3.5]


def test_what_was_ready_when_its_process_was_killed_is_not_ended_either() -> None:
    world, finished = World(1), list[str]()
    process = Process(world, "one")

    async def wait() -> None:
        try:
            for _ in range(9):
                await asyncio.sleep(0)
        finally:
            finished.append("finally")

    def begin() -> None:
        for _ in range(2):
            process.create_task(wait())

    process.call_soon(begin)
    process.after_steps(4, process.kill)
    world.run(5.0)
    assert finished == []


def test_a_fault_comes_after_so_many_steps_of_its_process() -> None:
    world, counted = World(1), list[int]()
    process = Process(world, "one")
    _counting(process, counted, [])
    _counting(Process(world, "another"), [], [])
    process.after_steps(6, process.kill)
    world.run(20.0)
    assert 1 <= len(counted) < 6
    assert not process.alive


def test_a_frozen_process_goes_on_later_and_its_timers_are_late() -> None:
    world, counted = World(1), list[int]()
    process = Process(world, "one")
    _counting(process, counted, [])
    world.run(2.5)
    process.freeze(5.0)
    world.run(7.4)
    assert counted == [0, 1, 2]
    world.run(8.0)
    assert counted == [0, 1, 2, 3]


def test_what_a_killed_process_had_sent_arrives_or_does_not() -> None:
    arrived = 0
    for seed in range(40):
        world, happened, answered = World(seed), list[str](), list[object]()
        process = Process(world, "one")

        async def ask(
            process: Process = process, into: list[object] = answered, say: list[str] = happened
        ) -> None:
            into.append(await process.request(lambda: say.append("effect")))

        process.call_soon(
            lambda process=process, ask=ask: setattr(process, "main", process.create_task(ask()))
        )
        process.after_steps(2, process.kill)
        world.run(5.0)
        assert answered == []
        arrived += len(happened)
    assert 5 < arrived < 35


def test_an_error_on_the_other_side_is_raised_here() -> None:
    world, raised = World(1), list[Exception]()
    process = Process(world, "one")

    async def ask() -> None:
        try:
            await process.request(lambda: 1 // 0)
        except ZeroDivisionError as error:
            raised.append(error)

    process.call_soon(lambda: setattr(process, "main", process.create_task(ask())))
    world.run(5.0)
    assert len(raised) == 1


def _sending(process: Process, sends: Callable[[], Coroutine[Any, Any, None]]) -> None:
    process.call_soon(lambda: setattr(process, "main", process.create_task(sends())))


def test_a_fault_comes_as_soon_as_so_much_has_arrived() -> None:
    world, arrived, answered = World(1), list[int](), list[int]()
    process = Process(world, "one")

    async def send() -> None:
        for number in range(5):
            await process.request(lambda: arrived.append(number), what="record")  # noqa: B023
            await process.request(lambda: None, what="other")
            answered.append(number)

    process.at_next("record", 3, process.kill)
    _sending(process, send)
    world.run(5.0)
    assert (arrived, answered) == ([0, 1, 2], [0, 1])
    assert not process.alive


def test_what_is_sent_in_line_arrives_in_order_and_nothing_behind_what_is_lost() -> None:
    lost = 0
    for seed in range(40):
        world, arrived, line = World(seed), list[int](), Line()
        process = Process(world, "one")

        async def send(process: Process = process, line: Line = line, arrived: list[int] = arrived) -> None:
            for number in range(6):
                process.request(lambda number=number: arrived.append(number), line)  # type: ignore[misc]
                await asyncio.sleep(0.001)

        _sending(process, send)
        process.after_steps(4, process.kill)
        world.run(5.0)
        assert arrived == [*range(len(arrived))]
        lost += len(arrived) < 3
    assert lost > 5


def test_waiting_for_a_time_takes_no_turn_of_its_own() -> None:
    world = World(1)
    process = Process(world, "one")

    async def sleep() -> None:
        for _ in range(10):
            await asyncio.sleep(0.1)

    _sending(process, sleep)
    world.run(5.0)
    # To begin the task, and for each sleep one.
    assert world.steps == 12
