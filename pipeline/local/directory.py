"""The data directory of the embedded parts and who owns it."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from types import TracebackType

_LOCK_FILE = "owner.lock"


class DirectoryInUse(Exception):
    """Another process owns the directory; `pid` is None when it has not written its number yet."""

    def __init__(self, path: Path, pid: int | None) -> None:
        super().__init__(path, pid)
        self.path = path
        self.pid = pid

    def __str__(self) -> str:
        owner = "another process" if self.pid is None else f"process {self.pid}"
        return f"directory {self.path} is in use by {owner}; stop it or choose another --data-dir"


class DataDirectory:
    """One directory for broker data, store data and logs, with one owning process at a time.

    The lock is an flock: the kernel drops it when the owner ends, however it ends, so none is ever stale.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path).expanduser().resolve()
        self._lock: int | None = None

    @property
    def broker(self) -> Path:
        return self.path / "broker"

    @property
    def store(self) -> Path:
        return self.path / "store"

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    def acquire(self) -> None:
        """Create the directory and own it; raises DirectoryInUse."""
        self.path.mkdir(parents=True, exist_ok=True)
        lock = os.open(self.path / _LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = _owner(lock)
            os.close(lock)
            raise DirectoryInUse(self.path, owner) from None
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
        self._lock = lock
        for part in (self.broker, self.store, self.logs):
            part.mkdir(exist_ok=True)

    def release(self) -> None:
        if self._lock is not None:
            # The file stays: removing it would let two owners lock two different files of one name.
            os.close(self._lock)
            self._lock = None

    def __enter__(self) -> DataDirectory:
        self.acquire()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def _owner(lock: int) -> int | None:
    text = os.pread(lock, 32, 0).strip()
    return int(text) if text.isdigit() else None
