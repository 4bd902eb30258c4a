"""What the processes log: which lines, and without colour where it is not wanted."""

from __future__ import annotations

import io
import logging
import subprocess
import sys
from collections.abc import Iterator

import pytest
import structlog

from pipeline.cli.logs import configure_logs


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    yield
    root.handlers, root.level = handlers, level


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
