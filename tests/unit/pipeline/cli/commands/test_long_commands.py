"""How far `state rebuild` and `verify` are: one line of a terminal, unless that overwrites nothing."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from typing import Any

import pytest

from pipeline.cli.commands import state, verify
from pipeline.rebuild import recomputing
from pipeline.rebuild.recomputing import Standing
from pipeline.verify import against_log
from pipeline.verify.findings import Findings
from pipeline.verify.progress import Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def rebuilt(monkeypatch: pytest.MonkeyPatch, out: io.StringIO) -> str:
    """Return what a rebuild writes that two looks follow."""

    async def discarded(*_: object) -> Any:
        class Discarded:
            checkpoints = 7

        return Discarded()

    async def follow(_settings: object, _begun: object, say: Callable[[Standing], None]) -> None:
        say(Standing(1.0, 0, 5_000, 0))
        say(Standing(9.0, 5_000, 5_000, 0))

    monkeypatch.setattr(state, "_discarded", discarded)
    monkeypatch.setattr(recomputing, "follow", follow)
    monkeypatch.setattr(sys, "stdout", out)
    assert state.rebuild.callback is not None
    state.rebuild.callback(None, yes=True, wait=True)
    return out.getvalue()


@pytest.mark.parametrize(("terminal", "term"), [(io.StringIO, "xterm"), (Terminal, "dumb")])
def test_a_rebuild_that_overwrites_nothing_writes_lines(
    monkeypatch: pytest.MonkeyPatch, terminal: type[io.StringIO], term: str
) -> None:
    monkeypatch.setenv("TERM", term)
    lines = rebuilt(monkeypatch, terminal()).splitlines()
    assert lines[0] == "7 checkpoint records discarded; start the workers now"
    assert lines[1] == "computing again: 0 of 5,000 event records (0 %), none applied yet"
    assert lines[-1].startswith("everything is computed again")


def test_a_rebuild_leaves_no_line_of_its_progress_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    assert "\r\x1b[Keverything is computed again" in rebuilt(monkeypatch, Terminal())


@pytest.mark.parametrize(
    ("terminal", "term", "shown"),
    [
        (Terminal, "xterm", "\r\x1b[Kcomparing costs (0 records)\r\x1b[K"),
        (Terminal, "dumb", ""),
        (io.StringIO, "xterm", ""),
    ],
)
def test_a_comparison_is_shown_where_lines_can_be_overwritten(
    monkeypatch: pytest.MonkeyPatch, terminal: type[io.StringIO], term: str, shown: str
) -> None:
    async def check_log(*_: object, progress: Progress, **__: object) -> Findings:
        progress.step("comparing costs")
        progress.end()
        assert progress.watched == bool(shown)
        return Findings()

    monkeypatch.setenv("TERM", term)
    monkeypatch.setattr(against_log, "check_log", check_log)
    out = terminal()
    monkeypatch.setattr(sys, "stderr", out)
    assert verify.verify.callback is not None
    options = {"recordings": (), "as_json": False, "until": "now", "patience": None}
    assert verify.verify.callback(None, None, **options) == 0
    assert out.getvalue() == shown
