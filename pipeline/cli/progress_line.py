"""One line of a terminal that says what a command does and for how long; a line now and then in a log."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import TextIO

from connectors.process.addresses import printable
from pipeline.cli.terminal import fitted, redraws

_EVERY_SECONDS = 0.5
_LOGGED_SECONDS = 8.0
"""At most this long between two lines of a log, so that readers see that the command still works."""
_ERASE = "\r\x1b[K"


class ProgressLine:
    """Shows a step and its seconds, over and over, from a thread: so it moves while the command waits.

    As a context manager it erases the line at the end. Lines of `tell` stay above it.
    """

    def __init__(
        self, out: TextIO | None = None, *, logged: bool = False, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`out` is standard error unless given.

        `logged`: if `out` is no terminal, each step is a line, repeated while it lasts.
        """
        self._out = sys.stderr if out is None else out
        self._shown = redraws(self._out)
        self._logged = logged and not self._shown
        self._clock = clock
        self._step = ""
        self._since = clock()
        self._written = self._since
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def step(self, text: str) -> None:
        """Say what goes on now; while the words before a colon stay the same, it is one step."""
        text = printable(text)
        with self._lock:
            if text.partition(":")[0] != self._step.partition(":")[0]:
                self._since = self._clock()
                if self._logged:
                    self._write(text + "\n")
            self._step = text

    def tell(self, line: str) -> None:
        """Write a line that stays, and ends the step."""
        with self._lock:
            self._write((_ERASE if self._shown else "") + line + "\n")
            self._step = ""

    def draw(self) -> None:
        """Show the step as it is now."""
        with self._lock:
            self._draw()

    def __enter__(self) -> ProgressLine:
        self._ended.clear()
        if self._shown or self._logged:
            self._thread = threading.Thread(target=self._run, daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        with self._lock:
            self._step = ""
            if self._shown:
                self._write(_ERASE)

    def _run(self) -> None:
        while not self._ended.wait(_EVERY_SECONDS):
            self.draw()

    def _draw(self) -> None:
        if not self._step:
            return
        seconds = f" ({self._clock() - self._since:.0f} s)"
        if self._shown:
            self._write(_ERASE + fitted(self._step, seconds, self._out))
        elif self._logged and self._clock() - self._written >= _LOGGED_SECONDS:
            self._write(f"{self._step}{seconds}\n")

    def _write(self, text: str) -> None:
        self._written = self._clock()
        self._out.write(text)
        self._out.flush()
