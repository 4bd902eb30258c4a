"""Threads that do not hold up the end of a process, and an exit that does not wait for them."""

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
    """Run `work` in a thread of its own, and return its result.

    Unlike the threads of an event loop, it holds up neither the loop's end nor, with `leave`, the process's:
    the compiler works for a minute where nothing is compiled yet, and cannot be interrupted.
    """
    return await asyncio.wrap_future(_begun_aside(work))


def awaited_aside(work: Callable[[], Result]) -> Result:
    """Run `work` in such a thread, and return its result: for callers without an event loop.

    A signal ends the wait, whereas looking up a name in the main thread holds signals back until the resolver
    gives up, which may take half a minute.
    """
    return _begun_aside(work).result()


def _begun_aside(work: Callable[[], Result]) -> Future[Result]:
    outcome: Future[Result] = Future()
    outcome.set_running_or_notify_cancel()  # a caller that stops waiting cancels nothing

    def run() -> None:
        try:
            outcome.set_result(work())
        except Exception as error:
            outcome.set_exception(error)

    start_aside(run)
    return outcome


def start_aside(work: Callable[[], None]) -> None:
    """Run `work` in such a thread; it has to report its outcome itself."""
    threading.Thread(target=work, name=_THREAD_NAME, daemon=True).start()


def busy_aside() -> bool:
    """Return whether such a thread still runs: the interpreter must not be shut down under it."""
    return any(thread.name == _THREAD_NAME for thread in threading.enumerate())


def leave(code: int) -> NoReturn:
    """End the process at once, after writing out logs and output."""
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # nobody reads it any more
            stream.flush()
    os._exit(code)
