from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time

import pytest

from connectors.process.leaving import aside, busy_aside
from connectors.process.stopping import done_before
from tests.support.checkout import ROOT

_BUSY = """
import asyncio, threading
from connectors.process.leaving import aside, busy_aside, leave
async def main():
    begun = threading.Event()
    def work():
        begun.set()
        threading.Event().wait()
    task = asyncio.create_task(aside(work))
    await asyncio.to_thread(begun.wait)
    task.cancel()
asyncio.run(main())
assert busy_aside()
print("said", end="")
leave(7)
"""


async def test_work_aside_returns_and_raises_as_if_it_were_called() -> None:
    assert await aside(lambda: threading.current_thread().daemon) is True
    with pytest.raises(ZeroDivisionError):
        await aside(lambda: 1 // 0)


async def test_a_wait_that_is_cancelled_does_not_wait_for_the_work() -> None:
    begun, may_end = threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        may_end.wait(30)

    task = asyncio.create_task(aside(work))
    await asyncio.to_thread(begun.wait, 30)
    stop = asyncio.Event()
    stop.set()
    assert not await done_before(stop, task)
    assert busy_aside()
    may_end.set()
    deadline = time.monotonic() + 60
    while busy_aside():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


def test_a_process_leaves_though_it_works_aside_with_its_code_and_all_it_said() -> None:
    done = subprocess.run([sys.executable, "-c", _BUSY], cwd=ROOT, capture_output=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (7, b"said", b"")
