"""Commands in a terminal: long ones show how far they are, and names are completed."""

from __future__ import annotations

import contextlib
import os
import pty
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.checkout import CAPTURES, TRACES
from tests.support.processes import KVLENS, environment, kvlens

TRACE = str(TRACES / "mooncake_conversation_1500.jsonl.gz")
CAPTURE = str(CAPTURES / "vllm-0.25.1-map-dp0.frames.msgpack.gz")


def shown(directory: Path, *arguments: str) -> tuple[int, str]:
    """Run a command whose standard error is a terminal; return its exit code and what was drawn there."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [*KVLENS, *arguments],
        cwd=directory,
        env=environment({"TERM": "xterm"}),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=theirs,
    ) as process:
        os.close(theirs)
        drawn = b""
        with contextlib.suppress(OSError):  # Linux's way to tell the end of a terminal
            while more := os.read(ours, 4096):
                drawn += more
        os.close(ours)
        return process.wait(60), drawn.decode()


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        pytest.param(
            ["whatif", TRACE, "--replicas", "2", "--capacity", "500,1000", "--routing", "sticky"],
            0,
            "playing 1,500 requests: row ",  # the first one may be done before anything is drawn
            id="whatif",
            marks=pytest.mark.night,
        ),
        pytest.param(
            ["record", "new.kvrec", "--endpoint", "{endpoint}", "--seconds", "2"],
            1,
            "recording: no batch yet (1 s)",
            id="record",
        ),
        pytest.param(
            [
                *("play", CAPTURE, "--endpoint", "{endpoint}"),
                *("--wait-subscribers", "0", "--speed", "0.2"),
            ],
            0,
            "playing: batch ",
            id="play",
            marks=pytest.mark.night,
        ),
    ],
)
def test_a_long_command_shows_how_far_it_is(
    tmp_path: Path, free_port: Callable[[], int], arguments: list[str], code: int, words: str
) -> None:
    endpoint = f"tcp://127.0.0.1:{free_port()}"
    ended, drawn = shown(tmp_path, *(argument.replace("{endpoint}", endpoint) for argument in arguments))
    assert ended == code, drawn
    assert words in drawn
    # The line is gone at the end.
    assert drawn.rpartition("\x1b[K")[2].lstrip().startswith("kvlens: " if code else "")


@pytest.mark.parametrize(
    ("words", "found"), [("kvlens doc", ["doctor"]), ("kvlens topics a", ["apply"]), ("kvlens s", None)]
)
def test_the_shell_completes_names(tmp_path: Path, words: str, found: list[str] | None) -> None:
    asked = {"COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    code, output, errors = kvlens(cwd=tmp_path, _KVLENS_COMPLETE="bash_complete", **asked)
    assert (code, errors) == (0, "")
    names = [line.partition(",")[2] for line in output.splitlines()]
    assert names == (found or ["serve", "state", "simulate"])


def test_the_help_says_how_to_complete_names(tmp_path: Path) -> None:
    assert 'eval "$(_KVLENS_COMPLETE=bash_source kvlens)"' in kvlens("--help", cwd=tmp_path)[1]
