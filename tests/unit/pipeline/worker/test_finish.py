"""A worker that stops forgets its memberships only when it has left all its groups."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from pipeline.worker.lifecycle import _Work


class Memberships:
    forgotten = False

    def forget(self) -> None:
        self.forgotten = True


@pytest.mark.parametrize("leaves", [True, False])
async def test_memberships_are_remembered_until_the_choices_group_is_left_too(leaves: bool) -> None:
    gone = asyncio.Event()

    async def choices() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.05 if leaves else 60)
            gone.set()

    work = object.__new__(_Work)
    memberships = Memberships()
    task = asyncio.create_task(choices())
    for name, value in {
        "_tasks": [],
        "_rounds": [],
        "_choices": [task],
        "_store": None,
        "agents": [],
        "_memberships": memberships,
    }.items():
        setattr(work, name, cast(Any, value))
    await asyncio.sleep(0)
    await work.finish(0.5)
    assert (memberships.forgotten, gone.is_set()) == (leaves, leaves)
    task.cancel()
