"""Commands of kvlens as processes of their own, with the settings that a test gives them and no others."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from schemas.settings import Settings
from tests.support.checkout import ROOT
from tests.support.patience import PATIENCE

KVLENS = (sys.executable, "-m", "pipeline.cli.main")


def environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return that of this process without settings of kvlens, and with the checkout's packages."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("KVLENS_")}
    return {**clean, "PYTHONPATH": str(ROOT), **(more or {})}


def as_toml(settings: Settings) -> str:
    """Return every setting, as a file for `--config`."""
    sections: list[tuple[str, dict[str, Any]]] = []
    for name, content in msgspec.to_builtins(settings).items():
        if isinstance(content, tuple):
            sections += [(f"[[{name}]]", table) for table in content]
            continue
        lists = {key: tables for key, tables in content.items() if isinstance(tables, tuple)}
        sections.append((f"[{name}]", {key: value for key, value in content.items() if key not in lists}))
        sections += [(f"[[{name}.{key}]]", table) for key, tables in lists.items() for table in tables]
    return "\n".join(
        line
        for head, keys in sections
        for line in (head, *(f"{k} = {json.dumps(v)}" for k, v in keys.items() if v is not None))
    )


def kvlens(*arguments: str, cwd: Path, seconds: float = PATIENCE, **more: str) -> tuple[int, str, str]:
    """Run a command to its end, for so long at most; return exit code, output and errors."""
    done = subprocess.run(
        [*KVLENS, *arguments],
        cwd=cwd,
        env=environment(more),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=seconds,
    )
    return done.returncode, done.stdout, done.stderr


@dataclass
class Started:
    """A process to watch and to hurt, with everything it says in a file."""

    process: subprocess.Popen[bytes]
    log: Path

    def said(self) -> str:
        return self.log.read_text()

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def wait_said(self, words: str, *, times: int = 1, seconds: float = PATIENCE) -> None:
        """Return when its log has the words so many times."""
        deadline = time.monotonic() + seconds
        while (text := self.said()).count(words) < times:
            assert self.alive, text[-3000:]
            assert time.monotonic() < deadline, text[-3000:]
            time.sleep(0.02)

    def send(self, number: int) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(PATIENCE)

    def end(self, seconds: float = PATIENCE) -> int:
        """Send SIGTERM unless it has ended; return the exit code."""
        if self.alive:
            self.send(signal.SIGTERM)
        return self.process.wait(seconds)

    def stop(self, seconds: float = PATIENCE) -> None:
        """Send SIGTERM, which it must take as an orderly end."""
        assert self.alive, self.said()[-3000:]
        assert self.end(seconds) == 0, self.said()[-3000:]

    def close(self) -> None:
        """Kill it if it still runs."""
        if self.alive:
            self.kill()


def started(command: Sequence[str], log: Path, *, cwd: Path, given: bytes = b"", **more: str) -> Started:
    """Start a command; `given` is what it reads on its standard input."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=cwd,
            env=environment(more),
            stdin=subprocess.PIPE if given else subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            # Tests that were started in the background of a shell ignore it, and what they start does, too.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
    if process.stdin is not None:
        process.stdin.write(given)
        process.stdin.close()
    return Started(process, log)
