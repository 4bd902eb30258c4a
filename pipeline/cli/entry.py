"""The console script: SIGTERM and Ctrl-C end it with one line from the beginning, also while it loads."""

from __future__ import annotations

import os
import signal
from types import FrameType
from typing import NoReturn


def main() -> None:
    """Load the command line and run it."""
    try:
        # As the first process of a container, it would never get a SIGTERM for which it has no handler.
        signal.signal(signal.SIGTERM, _end)
        # The image's entrypoint blocks both, so that none is lost before this line.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM, signal.SIGINT})
        from pipeline.cli.main import main as run
    except KeyboardInterrupt:
        os.write(2, b"kvlens: interrupted\n")
        os._exit(128 + signal.SIGINT)
    run()


def _end(_number: int, _frame: FrameType | None) -> NoReturn:
    """Exit at once: while modules load nothing needs cleaning up, and one might swallow an exception."""
    os.write(2, b"kvlens: terminated\n")
    os._exit(128 + signal.SIGTERM)
