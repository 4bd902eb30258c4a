"""The line that says what a command does: it moves on a terminal, and is not there where nobody watches."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import struct
import termios
import time
from collections.abc import Iterator
from typing import TextIO

import pytest

from pipeline.cli import progress_line
from pipeline.cli.progress_line import ProgressLine
from pipeline.cli.terminal import fitted


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def narrow() -> Iterator[TextIO]:
    """A terminal of 40 columns."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 40, 0, 0))
    with os.fdopen(theirs, "w") as out:
        yield out
    os.close(ours)


def shown(out: io.StringIO) -> list[str]:
    """What the terminal showed, one after the other, and the lines that stayed."""
    return [text for text in re.split(r"\r\x1b\[K|\n", out.getvalue()) if text]


def test_it_moves_although_the_command_says_nothing() -> None:
    out = Terminal()
    with ProgressLine(out) as progress:
        progress.step("starting Kafka")
        deadline = time.monotonic() + 60
        while out.getvalue().count("starting Kafka") < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
    assert out.getvalue().count("starting Kafka (") >= 2
    assert out.getvalue().endswith("\r\x1b[K")


def test_seconds_count_from_the_beginning_of_a_step() -> None:
    out, at = Terminal(), [100.0]
    progress = ProgressLine(out, clock=lambda: at[-1])
    for seconds, step in ((110.0, "fetching: 1"), (115.0, "fetching: 2"), (120.0, "formatting")):
        at.append(seconds)
        progress.step(step)
        progress.draw()
    assert shown(out) == ["fetching: 1 (0 s)", "fetching: 2 (5 s)", "formatting (0 s)"]


def test_what_was_told_stays_above_the_line() -> None:
    out = Terminal()
    progress = ProgressLine(out, clock=lambda: 0.0)
    progress.step("starting Kafka")
    progress.draw()
    progress.tell("Kafka runs")
    progress.draw()
    assert out.getvalue() == "\r\x1b[Kstarting Kafka (0 s)\r\x1b[KKafka runs\n"


def test_where_nobody_watches_there_are_only_the_lines_that_stay() -> None:
    out = io.StringIO()
    with ProgressLine(out) as progress:
        progress.step("playing: 1")
        progress.tell("done")
    assert out.getvalue() == "done\n"


def test_a_log_has_each_step_once() -> None:
    out = io.StringIO()
    with ProgressLine(out, logged=True) as progress:
        progress.step("fetching: 1")
        progress.step("fetching: 2")
        progress.tell("done")
    assert out.getvalue() == "fetching: 1\ndone\n"


def test_a_log_has_a_line_now_and_then_while_a_step_lasts() -> None:
    out, at = io.StringIO(), [100.0]
    progress = ProgressLine(out, logged=True, clock=lambda: at[-1])
    progress.step("fetching: 1")
    for seconds, step in ((104.0, "fetching: 2"), (109.0, "fetching: 3"), (112.0, "fetching: 4")):
        at.append(seconds)
        progress.step(step)
        progress.draw()
    at.append(118.0)
    progress.draw()
    assert out.getvalue() == "fetching: 1\nfetching: 3 (9 s)\nfetching: 4 (18 s)\n"


def test_a_log_is_written_while_the_command_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_line, "_LOGGED_SECONDS", 0.1)
    out = io.StringIO()
    with ProgressLine(out, logged=True) as progress:
        progress.step("starting the worker")
        deadline = time.monotonic() + 60
        while out.getvalue().count("starting the worker (") < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
    assert out.getvalue().count("starting the worker (") >= 2


def test_a_line_is_cut_to_the_row_that_can_be_overwritten(narrow: TextIO) -> None:
    assert fitted("reading " + "x" * 99, " (12 s)", narrow) == "reading " + "x" * 24 + " (12 s)"
    assert fitted("reading x", " (12 s)", narrow) == "reading x (12 s)"
    assert fitted("x", "y" * 99, narrow) == "y" * 99
    assert fitted("x" * 99, " (12 s)", io.StringIO()) == "x" * 99 + " (12 s)"


def test_a_long_step_stays_in_its_row(narrow: TextIO, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []
    monkeypatch.setattr(narrow, "write", written.append)
    progress = ProgressLine(narrow, clock=lambda: 0.0)
    progress.step("reading " + "x" * 99)
    progress.draw()
    assert [len(text) for text in written] == [len("\r\x1b[K") + 39]
    assert written[0].endswith("x (0 s)")


def test_a_step_moves_no_cursor() -> None:
    out = Terminal()
    progress = ProgressLine(out, clock=lambda: 0.0)
    progress.step("reading \x1b[2Jtrace\n")
    progress.draw()
    assert shown(out) == [r"reading \x1b[2Jtrace\n (0 s)"]


def test_a_terminal_that_overwrites_nothing_gets_no_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    out = Terminal()
    with ProgressLine(out, logged=True) as progress:
        progress.step("computing again: 1")
        progress.step("computing again: 2")
    assert out.getvalue() == "computing again: 1\n"
