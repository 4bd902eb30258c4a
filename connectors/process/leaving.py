"""The end of a process: threads whose work nobody waits for, and an exit that does not wait for them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import NoReturn, TypeVar

_THREAD_NAME = "aside"

Result = TypeVar("Result")


async def aside(work: Callable[[], Result]) -> Result:
    """Return what `work` returns, in a thread of its own.

    Unlike the threads of an event loop, it holds neither the loop's end nor, with `leave`, the process's:
    the compiler works for a minute where nothing is compiled yet, and cannot be interrupted.
    """
    return await asyncio.wrap_future(_begun_aside(work))


def awaited_aside(work: Callable[[], Result]) -> Result:
    """Return what `work` returns, in such a thread, for callers without an event loop.

    The wait for it ends at a signal; a look-up of a name in the main thread holds signals back until the
    resolver gives up, which may take half a minute.
    """
    return _begun_aside(work).result()


def _begun_aside(work: Callable[[], Result]) -> Future[Result]:
    outcome: Future[Result] = Future()
    outcome.set_running_or_notify_cancel()  # whoever stops waiting cancels nothing

    def run() -> None:
        try:
            outcome.set_result(work())
        except Exception as error:
            outcome.set_exception(error)

    start_aside(run)
    return outcome


def start_aside(work: Callable[[], None]) -> None:
    """Run `work`, which reports by itself what comes of it, in such a thread."""
    threading.Thread(target=work, name=_THREAD_NAME, daemon=True).start()


def busy_aside() -> bool:
    """Tell whether such a thread still works: the interpreter must not be taken down around it."""
    return any(thread.name == _THREAD_NAME for thread in threading.enumerate())


def leave(code: int) -> NoReturn:
    """End the process at once, with everything written that was said."""
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # nobody reads it any more
            stream.flush()
    os._exit(code)
