"""Remembers this worker's memberships in consumer groups, and finds those of workers that died here.

A killed worker stays a member until its session times out, and new members have to wait for that. Each worker
keeps its memberships in a locked file of its own; the kernel releases the lock when the process ends, so an
unlocked file belongs to a dead worker.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

import msgspec

_FILES = "members-*.json"


class Memberships:
    """The memberships of one process; without a directory to write to, nothing is remembered."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._path = directory / _FILES.replace("*", secrets.token_hex(8))
        self._members: dict[str, str] = {}
        self._lock: int | None = None

    def note(self, group: str, member: str) -> None:
        """Remember that this process is a member of a group."""
        self._members[group] = member
        with contextlib.suppress(OSError):
            if self._lock is None:
                self._directory.mkdir(parents=True, exist_ok=True)
                # Until it is locked it looks like that of a dead worker.
                unlocked = self._path.with_suffix(".new")
                self._lock = os.open(unlocked, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
                fcntl.flock(self._lock, fcntl.LOCK_EX)
                unlocked.rename(self._path)
            os.ftruncate(self._lock, 0)
            os.pwrite(self._lock, msgspec.json.encode(self._members), 0)

    def forget(self) -> None:
        """Remember no memberships any more: the groups were left."""
        if self._lock is not None:
            self._path.unlink(missing_ok=True)
            os.close(self._lock)
            self._lock = None

    def of_the_dead(self) -> Iterator[dict[str, str]]:
        """Yield group -> member of each dead worker of this directory; the next step removes its file."""
        for path in self._directory.glob(_FILES):
            if path != self._path:
                with contextlib.suppress(BlockingIOError, FileNotFoundError, PermissionError):
                    yield from _taken(path)


def _taken(path: Path) -> Iterator[dict[str, str]]:
    lock = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        # No other worker takes it up meanwhile; if we fail, the next one finds it again.
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with contextlib.suppress(msgspec.MsgspecError):  # it died while it wrote
            yield msgspec.json.decode(path.read_bytes(), type=dict[str, str])
        path.unlink(missing_ok=True)
    finally:
        os.close(lock)
