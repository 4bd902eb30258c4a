"""What the terminal is like that a command writes to."""

from __future__ import annotations

import os
import shutil
import sys
from typing import TextIO


def width() -> int | None:
    """Return the columns of the terminal that standard output is; None where it is none."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def redraws(stream: TextIO) -> bool:
    """Whether the stream is a terminal on which lines can be written over."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"
