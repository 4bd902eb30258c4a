"""From a clone to the first chart, as somebody who never had kvlens on this machine waits for it.

Clones this checkout's last commit, or another repository, into an empty directory with an empty home, runs
`make demo` there and dates each line that it prints, asks the page's API as a browser would, presses Ctrl-C,
and starts once more. Packages and jars come from where pip and Maven find them on this machine.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import ProxyHandler, build_opener

from figures import Figures

THIS = Path(__file__).parents[2]
STEPS = {
    "venv": r"^installing deploy/locks",
    "packages": r"^loading kvlens",
    "jars": r"^formatting Kafka's storage|^Kafka listens on",
    "Kafka up": r"^Kafka listens on",
    "ClickHouse up": r"^ClickHouse listens on",
    "tables": r"^topics and tables are in place",
    "worker ready": r"^worker is ready",
    "page up": r"^boards are on (?P<page>\S+)",
    "first figure in the terminal": r"^\d+ sources, ",
}
"""What is reached -> the line of `make demo` that says so."""
PANEL = "fleet-fills"
"""The board Fleet's chart of what prefill was avoidable."""
WINDOW_SECONDS = 10
LONGEST_SECONDS = 600
RANGE_SECONDS = 900


@dataclass
class Start:
    """One `make demo`: seconds from its beginning, or from that of the clone, to each step."""

    began: float
    reached: dict[str, float] = field(default_factory=dict)
    silence: float = 0.0
    """The longest time without a line, until the first figure in the terminal."""
    stopped: float = 0.0
    """From Ctrl-C to the end."""


def run(figures: Figures, repository: Path | None = None) -> None:
    """Measure the last commit of `repository`, or of this checkout. Raises SystemExit when it fails."""
    with tempfile.TemporaryDirectory(prefix="kvlens-first-look-", ignore_cleanup_errors=True) as name:
        directory = Path(name)
        began = time.monotonic()
        clone = [
            "git",
            "-c",
            "advice.detachedHead=false",
            "clone",
            "--quiet",
            str(repository or THIS),
            str(directory / "kvlens"),
        ]
        subprocess.run(clone, check=True)
        cloned = time.monotonic() - began
        (directory / "home").mkdir()
        first = _start(directory, began)
        figures.add("first look: clone", cloned, "s")
        _add(figures, "first look", first)
        _add(figures, "warm start", _start(directory, time.monotonic()))


def _add(figures: Figures, name: str, start: Start) -> None:
    for step, seconds in start.reached.items():
        figures.add(f"{name}: {step}", seconds, "s")
    figures.add(f"{name}: longest time without a line", start.silence, "s")
    figures.add(f"{name}: Ctrl-C to the end", start.stopped, "s")


def _start(directory: Path, began: float) -> Start:
    start = Start(began)
    with _demo(directory) as demo:
        overdue = threading.Timer(LONGEST_SECONDS, _signal, [demo, signal.SIGKILL])
        overdue.start()
        lines = _read_until_figure(demo, start)
        page = start.reached and _page(lines)
        if not page:
            raise SystemExit("make demo ended before its first figure:\n" + "".join(lines[-30:]))
        start.reached["first chart"] = _first_chart(page, began)
        asked = time.monotonic()
        _signal(demo, signal.SIGINT)
        demo.communicate(timeout=60)
        start.stopped = time.monotonic() - asked
        overdue.cancel()
    return start


@contextlib.contextmanager
def _demo(directory: Path) -> Iterator[subprocess.Popen[str]]:
    """`make demo` with nothing that this machine's user keeps: no home, no settings, no compiled code."""
    of_user = ("KVLENS_", "XDG_", "NUMBA_", "PYTHON", "MAKE", "M2_REPO", "VIRTUAL_ENV", "ARGS", "MFLAGS")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(of_user)}
    with subprocess.Popen(
        ["make", "demo"],
        cwd=directory / "kvlens",
        env={**environment, "HOME": str(directory / "home")},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        # A bench that a shell runs in its background ignores it, and so does what it starts.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as demo:
        try:
            yield demo
        finally:
            _signal(demo, signal.SIGKILL)


def _signal(demo: subprocess.Popen[str], number: int) -> None:
    """Send a signal to make and all that it runs, as a terminal does."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(demo.pid, number)


def _read_until_figure(demo: subprocess.Popen[str], start: Start) -> list[str]:
    """Return the lines up to the first with figures; note when each step was reached."""
    assert demo.stdout is not None
    lines: list[str] = []
    last = time.monotonic()
    for line in demo.stdout:
        now = time.monotonic()
        lines.append(line)
        start.silence = max(start.silence, now - last)
        last = now
        for step, words in STEPS.items():
            if step not in start.reached and re.search(words, line):
                start.reached[step] = now - start.began
        if "first figure in the terminal" in start.reached:
            break
    return lines


def _page(lines: list[str]) -> str | None:
    """Return the address of the page that `make demo` has printed."""
    found = [match["page"] for line in lines if (match := re.search(STEPS["page up"], line))]
    return found[-1] if found else None


def _first_chart(page: str, began: float) -> float:
    """Return after how long the page's API answers with a closed window of the demo's traffic.

    A window that began before the clone is of an earlier start.
    """
    since = time.time() - (time.monotonic() - began)
    opener = build_opener(ProxyHandler({}))
    while time.monotonic() - began < LONGEST_SECONDS:
        now = int(time.time())
        question = urlencode({"from": now - RANGE_SECONDS, "to": now + WINDOW_SECONDS})
        with contextlib.suppress(URLError, OSError):
            with opener.open(f"{page}api/panels/{PANEL}?{question}", timeout=10) as answer:
                windows = next(iter(json.load(answer)["columns"]), [])
            if any(since <= window <= now - WINDOW_SECONDS for window in windows):
                return time.monotonic() - began
        time.sleep(0.1)
    raise SystemExit(f"the page showed no closed window within {LONGEST_SECONDS} s")
