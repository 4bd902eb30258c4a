"""A process of load as its parent sees it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Paced:
    """How a load kept its own pace."""

    late: float
    """Seconds by which a step was late at most."""
    cpu: float
    """CPU seconds of all of it."""


class Load:
    """Runs one of the modules beside this one while the block lasts."""

    def __init__(self, module: str, arguments: Sequence[str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", f"fleet_load.{module}", *arguments],
            cwd=Path(__file__).parents[1],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Load:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()

    def heard(self, word: str) -> list[str]:
        """Return what follows the word in the line that the process says next."""
        assert self._process.stdout is not None
        said = self._process.stdout.readline().split()
        if said[:1] != [word]:
            raise SystemExit(f"the load said {said} instead of {word!r}")
        return said[1:]

    def tell(self, word: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(word + "\n")
        self._process.stdin.flush()

    def ended(self) -> Paced:
        """Wait for the end of the load."""
        late, used = map(float, self.heard("done"))
        return Paced(late, used)
