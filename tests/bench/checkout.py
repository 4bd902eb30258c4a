"""A checkout of kvlens whose processes are measured: this one, or an older one with a `.venv` of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO


@dataclass(frozen=True)
class Checkout:
    name: str
    """In figures; also part of the names of its topics and tables."""
    directory: Path
    python: Path

    @classmethod
    def at(cls, name: str, directory: Path) -> Checkout:
        """Return the one in a directory. Raises SystemExit when `make venv` was not run there."""
        python = directory.resolve() / ".venv/bin/python"
        if not python.exists():
            raise SystemExit(f"{directory} has no .venv: run `make venv` there")
        return cls(name, directory.resolve(), python)

    def start(
        self, arguments: Sequence[str], environment: Mapping[str, str], log: IO[bytes] | None = None
    ) -> subprocess.Popen[bytes]:
        """Start `kvlens ARGUMENTS`; what it logs goes to a file, or nowhere."""
        stderr = subprocess.DEVNULL if log is None else log
        return subprocess.Popen(
            self._command(arguments), cwd=self.directory, env=dict(environment), stderr=stderr
        )

    def run(self, arguments: Sequence[str], environment: Mapping[str, str]) -> None:
        """Run `kvlens ARGUMENTS` to its end. Raises SystemExit with what it said when it fails."""
        done = subprocess.run(
            self._command(arguments),
            cwd=self.directory,
            env=dict(environment),
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise SystemExit(f"{self.name}: kvlens {' '.join(arguments)} failed: {done.stderr.strip()}")

    def _command(self, arguments: Sequence[str]) -> list[str]:
        return [str(self.python), "-m", "pipeline.cli.main", *arguments]


THIS = Checkout("new", Path(__file__).parents[2], Path(sys.executable))
