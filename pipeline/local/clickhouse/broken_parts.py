"""Parts of tables that the engine cannot read although the disk is sound: a restart reads them again.

Parts that were written while the disk was full may stay unreadable, in memory only, after there is room
again. So the store ends, and its supervisor restarts it: once for each part, because a part that is really
damaged would fail again.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from pipeline.clickhouse.remedies import broken_part
from pipeline.local.clickhouse.errors import StoreError

ROOM_BYTES = 64 << 20
"""Free space without which a restart would be of no use."""
_MOST_PARTS = 1000


class BrokenParts:
    """Looks at the errors of a store, and calls `end` when a restart may make a part readable again."""

    def __init__(self, path: Path, end: Callable[[str], None]) -> None:
        """`path` is the data directory, where the parts that the store was ended for are noted."""
        self._path = path
        self._noted = path / "started-again-for.txt"
        self._end = end

    def look(self, error: StoreError) -> None:
        """End the store if the error names a part that it was not ended for before."""
        part = broken_part(error.code, error.message)
        if part is None or part in (known := self._known()):
            return
        try:
            if shutil.disk_usage(self._path).free < ROOM_BYTES:
                return
            self._noted.write_text("".join(f"{each}\n" for each in [*known, part][-_MOST_PARTS:]))
        except OSError:
            return  # without the note it might restart for ever
        self._end(part)

    def _known(self) -> list[str]:
        try:
            return self._noted.read_text("utf-8").splitlines()
        except (OSError, UnicodeDecodeError):
            return []
