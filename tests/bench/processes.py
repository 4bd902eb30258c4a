"""kvlens processes under measurement: their CPU time and memory from the kernel's accounting."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from checkout import THIS, Checkout

_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """Return user and system CPU time of all threads of a process so far, seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def child_with(marker: str) -> int:
    """Return the process with the argument `marker`, of those that this one started, however far down.

    Raises LookupError.
    """
    ours = {os.getpid()}
    processes = {int(entry.name): entry for entry in Path("/proc").iterdir() if entry.name.isdigit()}
    for pid in sorted(processes):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            if int((processes[pid] / "stat").read_text().rpartition(")")[2].split()[1]) in ours:
                ours.add(pid)
                arguments = (processes[pid] / "cmdline").read_bytes().split(b"\0")
                if marker.encode() in arguments and b"lifeline" not in b" ".join(arguments):
                    return pid
    raise LookupError(marker)


def waited_seconds(pid: int) -> float:
    """Return how long the main thread of a process was ready to run while others had the cores, seconds."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9


def resident_bytes(pid: int) -> int:
    """Return the resident set of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@contextmanager
def launched(
    arguments: Sequence[str],
    environment: Mapping[str, str],
    checkout: Checkout = THIS,
    log: IO[bytes] | None = None,
) -> Iterator[subprocess.Popen[bytes]]:
    """Run `kvlens ARGUMENTS` of a checkout while the block lasts."""
    process = checkout.start(arguments, environment, log)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
