"""Signals set a stop; tasks that run for ever end at it, even if a cancellation gets lost."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from connectors.process.stopping import SOON_SECONDS, Stop, ended, ended_within


@pytest.mark.parametrize(
    ("number", "long"), [(signal.SIGTERM, 600.0), (signal.SIGINT, SOON_SECONDS)], ids=["term", "int"]
)
async def test_a_stop_takes_its_time_unless_somebody_waits(number: int, long: float) -> None:
    stop = Stop()
    stop.at_signals()
    try:
        assert stop.within(600.0) == 600.0
        os.kill(os.getpid(), number)
        await asyncio.wait_for(stop.wait(), 60)
    finally:
        for each in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().remove_signal_handler(each)
    assert stop.within(600.0) == long
    assert stop.within(1.0) == 1.0


@pytest.mark.parametrize("lost", [0, 1, 3])
async def test_whoever_goes_on_is_cancelled_again(lost: int) -> None:
    cancelled = 0

    async def for_ever() -> None:
        nonlocal cancelled
        while True:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                cancelled += 1
                if cancelled > lost:
                    raise

    task = asyncio.create_task(for_ever())
    await asyncio.sleep(0)
    await asyncio.wait_for(ended(task, None), 60)
    assert task.cancelled()
    assert cancelled == lost + 1


async def test_a_cancellation_that_comes_together_with_an_answer() -> None:
    answers = [asyncio.get_running_loop().create_future() for _ in range(2)]

    async def for_ever() -> None:
        for answer in answers:
            await asyncio.wait_for(answer, 3600)

    task = asyncio.create_task(for_ever())
    await asyncio.sleep(0.01)
    answers[0].set_result(None)
    await asyncio.wait_for(ended(task), 60)
    assert task.cancelled()


async def test_what_a_task_ended_with_is_nobodys_business() -> None:
    async def fails() -> None:
        raise ValueError("of the task")

    task = asyncio.create_task(fails())
    await asyncio.sleep(0)
    await ended(task, None)
    await ended()
    assert task.done()


async def test_what_ends_in_time_is_left_alone_and_its_error_is_told() -> None:
    said: list[str] = []

    async def stops() -> None:
        await asyncio.sleep(0.01)
        said.append("stopped")

    async def fails() -> None:
        raise ValueError("of the stop")

    await ended_within(10, stops())
    assert said == ["stopped"]
    with pytest.raises(ValueError, match="of the stop"):
        await ended_within(10, fails())


@pytest.mark.parametrize("lost", [0, 1, 3])
async def test_what_does_not_end_in_time_is_cancelled_until_it_does(lost: int) -> None:
    cancelled = 0

    async def for_ever() -> None:
        nonlocal cancelled
        while cancelled <= lost:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                cancelled += 1

    await asyncio.wait_for(ended_within(0.01, for_ever()), 60)
    assert cancelled == lost + 1
