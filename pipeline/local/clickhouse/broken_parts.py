"""A part of a table that cannot be read although the disk is whole: the engine reads it anew when it starts.

What was written while a disk was full may stay so, in memory only, after there is room again. So the store
ends, and whoever keeps it running starts it again: once for each part, because one that is really damaged
would come back the same.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from pipeline.clickhouse.remedies import broken_part
from pipeline.local.clickhouse.errors import StoreError

ROOM_BYTES = 64 << 20
"""Free space without which starting again would heal nothing."""
_MOST_PARTS = 1000


class BrokenParts:
    """Looks at the errors of a store, and calls `end` when a start anew may mend what cannot be read."""

    def __init__(self, path: Path, end: Callable[[str], None]) -> None:
        """`path` is the directory of the data; the parts that it was ended for are noted there."""
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
            return  # without a note it might end for ever
        self._end(part)

    def _known(self) -> list[str]:
        try:
            return self._noted.read_text("utf-8").splitlines()
        except (OSError, UnicodeDecodeError):
            return []
