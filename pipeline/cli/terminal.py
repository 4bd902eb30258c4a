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
