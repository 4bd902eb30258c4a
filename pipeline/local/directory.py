"""The data directory of an installation on this machine, and who owns it."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from pipeline.errors import PipelineError

DIRECTORY_RIGHTS = 0o700
FILE_RIGHTS = 0o600
"""What engines cache, who runs them and how to reach them is for the owner alone to read."""
UMASK = 0o777 & ~DIRECTORY_RIGHTS
_LOCK_FILE = "owner.lock"
_POLL_SECONDS = 0.05


def write_for_owner_alone() -> None:
    """Set the umask so that nobody else can read what this process and its children write."""
    os.umask(UMASK)


class DirectoryInUse(PipelineError):
    """Another process owns the directory; `pid` is None when it has not written its number yet."""

    path: Path
    pid: int | None

    def __str__(self) -> str:
        owner = "another process" if self.pid is None else f"process {self.pid}"
        return f"directory {self.path} is in use by {owner}; stop it or choose another --data-dir"


class DirectoryUnusable(PipelineError):
    """The directory cannot be created or written."""

    path: Path
    reason: str
    line = "cannot write to directory {path}: {reason}; mend that or choose another --data-dir"


class DirectoryLock:
    """One owner of one directory.

    An flock: the kernel drops it when the owner ends, however it ends, so none is ever stale; processes that
    inherit `descriptor` keep it until the last of them ends.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor: int | None = None

    @property
    def descriptor(self) -> int:
        """The open lock file, for a child process to inherit; raises RuntimeError when not acquired."""
        if self._descriptor is None:
            raise RuntimeError(f"the lock of {self.path} is not held")
        return self._descriptor

    def acquire(self, patience: float = 0.0) -> None:
        """Create the directory and own it; raises DirectoryUnusable, or DirectoryInUse after `patience` s."""
        with usable(self.path):
            self._acquire(patience)

    def _acquire(self, patience: float) -> None:
        self.path.mkdir(DIRECTORY_RIGHTS, parents=True, exist_ok=True)
        lock = os.open(self.path / _LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_RIGHTS)
        try:
            self._wait_for(lock, time.monotonic() + patience)
            os.ftruncate(lock, 0)
            os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
        except BaseException:
            os.close(lock)
            raise
        self._descriptor = lock

    def _wait_for(self, lock: int, deadline: float) -> None:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise DirectoryInUse(self.path, _owner(lock)) from None
                time.sleep(_POLL_SECONDS)

    def release(self) -> None:
        if self._descriptor is not None:
            # The file stays: if it were removed, two owners could lock two different files of one name.
            os.close(self._descriptor)
            self._descriptor = None


class DataDirectory:
    """One directory for broker data, store data and logs, with one owning process at a time."""

    def __init__(self, path: Path | str) -> None:
        with usable(Path(path)):
            self.path = Path(path).expanduser().resolve()
        self._lock = DirectoryLock(self.path)

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
        """Create the directory with its subdirectories, and own it.

        Raises DirectoryInUse, DirectoryUnusable.
        """
        self._lock.acquire()
        with usable(self.path):
            for inner in (self.broker, self.store, self.logs):
                inner.mkdir(exist_ok=True)
                inner.chmod(DIRECTORY_RIGHTS)  # earlier versions made them readable for all

    def __enter__(self) -> DataDirectory:
        self.acquire()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()


@contextmanager
def usable(path: Path) -> Iterator[None]:
    """Raise DirectoryUnusable for what the file system refuses."""
    try:
        yield
    except (OSError, RuntimeError) as error:  # RuntimeError: a loop of links, or no home directory
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise DirectoryUnusable(path, reason) from error


def _owner(lock: int) -> int | None:
    text = os.pread(lock, 32, 0).strip()
    return int(text) if text.isdigit() else None
