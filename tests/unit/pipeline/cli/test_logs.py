"""What the processes log: which lines, and without colour where it is not wanted."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import click
import pytest
import structlog
from click.testing import CliRunner

from connectors.process.foreign_logs import OWN_LOGGERS
from pipeline.cli.commands.at import at
from pipeline.cli.commands.serve import serve
from pipeline.cli.logs import configure_logs
from pipeline.index.following import past


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    loggers = [logging.getLogger(name) for name in ("", *OWN_LOGGERS)]
    before = [(logger.handlers, logger.level) for logger in loggers]
    yield
    for logger, (handlers, level) in zip(loggers, before, strict=True):
        logger.handlers, logger.level = handlers, level


def logged(monkeypatch: pytest.MonkeyPatch, level: str, no_color: str = "") -> str:
    out = Terminal()
    monkeypatch.setattr(sys, "stderr", out)
    monkeypatch.setenv("NO_COLOR", no_color)
    configure_logs(level)
    for name in ("faust.app", "kvlens.here"):
        for step in ("debug", "info", "warning", "error"):
            getattr(logging.getLogger(name), step)(f"{name.partition('.')[0]}-{step}")
    return out.getvalue()


@pytest.mark.parametrize(
    ("level", "ours", "theirs"),
    [
        ("debug", ["debug", "info", "warning", "error"], ["debug", "info", "warning", "error"]),
        ("info", ["info", "warning", "error"], ["warning", "error"]),
        ("warning", ["warning", "error"], ["warning", "error"]),
        ("error", ["error"], ["error"]),
    ],
)
def test_the_level_counts_and_libraries_log_only_what_is_wrong(
    monkeypatch: pytest.MonkeyPatch, level: str, ours: list[str], theirs: list[str]
) -> None:
    text = logged(monkeypatch, level)
    steps = ("debug", "info", "warning", "error")
    assert [step for step in steps if f"kvlens-{step}" in text] == ours
    assert [step for step in steps if f"faust-{step}" in text] == theirs


@pytest.mark.parametrize(
    ("command", "arguments", "does"), [(serve, [], "_serve"), (at, ["-60", "--json"], "_answer")]
)
def test_what_servers_and_questions_log_is_not_in_their_output(
    monkeypatch: pytest.MonkeyPatch, command: click.Command, arguments: list[str], does: str
) -> None:
    def log(*_: object) -> Any:
        structlog.get_logger("pipeline.here").warning("ours", url="http://me:hidden@here")
        logging.getLogger("aiokafka").error("theirs")
        return asyncio.sleep(0, {}) if does == "_serve" else {}

    assert command.callback is not None
    monkeypatch.setattr(sys.modules[command.callback.__module__], does, log)
    monkeypatch.setattr(past, "past", lambda *_: asyncio.sleep(0))
    result = CliRunner(env={"KVLENS_CONFIG": ""}).invoke(command, arguments)
    assert result.exception is None
    assert "ours" not in result.stdout
    assert "theirs" not in result.stderr
    assert json.loads(result.stderr)["url"] == "http://********@here"


def test_a_terminal_gets_colours_unless_they_are_not_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "\x1b[" in logged(monkeypatch, "info")
    assert "\x1b[" not in logged(monkeypatch, "info", no_color="1")


def test_names_of_others_write_nothing_else_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    out = Terminal()
    monkeypatch.setattr(sys, "stderr", out)
    monkeypatch.setenv("NO_COLOR", "1")
    configure_logs("info")
    structlog.get_logger("kvlens.here").warning("heard", replica="x\x1b[31m\nverdict: healthy\x07\u202e\x9b")
    logging.getLogger("kvlens.here").warning("a\x1b[31mb\nc")
    text = out.getvalue()
    assert len(text.splitlines()) == 2
    assert all(line.isprintable() for line in text.splitlines())
    assert "a\\x1b[31mb\\nc" in text


def test_a_command_is_loaded_without_what_only_colours_tracebacks() -> None:
    """Our tools bring rich, and structlog would import it: a tenth of a second of each start."""
    loaded = "import sys; from pipeline.cli.main import kvlens; kvlens.get_command(None, 'serve')"
    told = subprocess.check_output(
        [sys.executable, "-c", f"{loaded}; print([each in sys.modules for each in ('structlog', 'rich')])"]
    )
    assert told == b"[True, False]\n"
