"""Properties of the terminal to which a command writes."""

from __future__ import annotations

import os
import shutil
import sys
from typing import TextIO


def width() -> int | None:
    """Return the width of the terminal at standard output, in columns; None if that is no terminal."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def redraws(stream: TextIO) -> bool:
    """Return whether the stream is a terminal on which lines can be overwritten."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def fitted(line: str, end: str, stream: TextIO) -> str:
    """Return a line and its end, the line cut so that both stand in one row of the terminal at `stream`.

    Only one row can be overwritten. Where the width is not known, nothing is cut.
    """
    try:
        columns = os.get_terminal_size(stream.fileno()).columns
    except OSError:
        columns = 0
    # A character in the last column moves the cursor into the next row on some terminals.
    return line[: max(0, columns - 1 - len(end))] + end if columns else line + end
