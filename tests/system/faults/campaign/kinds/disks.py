"""Disks that are full: the store finds too little room, the kernel refuses every write of the broker."""

from __future__ import annotations

import random
import resource
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.system.faults.campaign.site import Site

_NEEDED = "min_free_disk_bytes_to_perform_insert"
_TABLES = "SELECT name FROM system.tables WHERE database = currentDatabase() AND engine LIKE '%MergeTree'"
_MORE_THAN_ANY_DISK = 1 << 60


@contextmanager
def store_full(site: Site, rng: random.Random) -> Iterator[str]:
    """The engine itself refuses inserts, as it does when the disk has no room for their parts."""
    installation = site.installation
    tables = [name for (name,) in installation.query(_TABLES)]
    for table in tables:
        installation.query(f"ALTER TABLE {table} MODIFY SETTING {_NEEDED} = {_MORE_THAN_ANY_DISK}")
    try:
        yield f"{len(tables)} tables"
    finally:
        for table in tables:
            installation.query(f"ALTER TABLE {table} RESET SETTING {_NEEDED}")


@contextmanager
def broker_full(site: Site, rng: random.Random) -> Iterator[str]:
    """The broker cannot write, gives its directory up and ends; it comes back when there is room again."""
    part, directory = site.installation.broker, site.installation.directory / "broker"
    part.hold()
    _limit_files(directory, 0)
    try:
        yield part.name
    finally:
        _limit_files(directory, resource.RLIM_INFINITY)
        part.release()


def _limit_files(directory: Path, size: int) -> None:
    """Bound the files that processes with this directory on their command line may write."""
    for process in Path("/proc").iterdir():
        with suppress(OSError):
            if process.name.isdigit() and str(directory).encode() in (process / "cmdline").read_bytes():
                _, hard = resource.prlimit(int(process.name), resource.RLIMIT_FSIZE)
                soft = hard if size == resource.RLIM_INFINITY else size
                resource.prlimit(int(process.name), resource.RLIMIT_FSIZE, (soft, hard))
