"""`kvlens verify`, again and again beside the faults: equal, late or unable, but never a difference."""

from __future__ import annotations

import subprocess
import threading
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from tests.support.checkout import ROOT
from tests.support.processes import KVLENS, environment

EQUAL, DIFFERENT, UNABLE, LATE = 0, 1, 2, 3
NAMES = {EQUAL: "equal", DIFFERENT: "different", UNABLE: "could not compare", LATE: "late"}
_LONGEST_SECONDS = 400.0
_PAUSE_SECONDS = 3.0
_LATE_SECONDS = 240.0


@dataclass(frozen=True)
class Look:
    """One run of the command."""

    code: int
    seconds: float
    output: str


def look(config: Path) -> Look:
    """Run it once. Raises TimeoutExpired when it takes far too long."""
    began = time.monotonic()
    done = subprocess.run(
        [*KVLENS, "verify", "--config", str(config)],
        cwd=ROOT,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_LONGEST_SECONDS,
    )
    return Look(done.returncode, time.monotonic() - began, done.stdout)


def look_until_equal(config: Path) -> list[Look]:
    """Run it until nothing is late; return all looks, the last of which says equal or what is wrong."""
    deadline = time.monotonic() + _LATE_SECONDS
    looks = [look(config)]
    while looks[-1].code == LATE and time.monotonic() < deadline:
        looks.append(look(config))
    return looks


class Looker:
    """Looks in a thread until it is stopped or sees what must not be."""

    def __init__(self, config: Path) -> None:
        self.looks: list[Look] = []
        self._config = config
        self._stopping = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="verify", daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def counts(self) -> Counter[int]:
        return Counter(one.code for one in self.looks)

    def check(self) -> None:
        """Assert that no look saw a difference, and that each came to its end."""
        if self._failure is not None:
            raise self._failure
        for one in self.looks:
            assert one.code in (EQUAL, LATE, UNABLE), f"verify beside the faults: {one.code}\n{one.output}"

    def look_no_more(self) -> None:
        """Begin no other look after the present one."""
        self._stopping.set()

    def stop(self) -> None:
        """Let the present look end. Raises what `check` raises."""
        self.look_no_more()
        self._thread.join(_LONGEST_SECONDS + 10)
        self.check()

    def _run(self) -> None:
        try:
            while not self._stopping.wait(_PAUSE_SECONDS):
                self.looks.append(look(self._config))
        except BaseException as error:
            self._failure = error
