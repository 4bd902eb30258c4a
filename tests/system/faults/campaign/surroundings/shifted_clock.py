"""Runs a kvlens command whose clock is wrong: `python .../shifted_clock.py SECONDS COMMAND ...`."""

from __future__ import annotations

import sys
import time

_right = time.time


def _shift(seconds: float) -> None:
    time.time = lambda: _right() + seconds


if __name__ == "__main__":
    _shift(float(sys.argv[1]))
    from pipeline.cli.main import main

    sys.argv[1:] = sys.argv[2:]
    sys.exit(main())
