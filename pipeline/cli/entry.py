"""The console script: Ctrl-C ends it with one line from the beginning, also while it loads."""

from __future__ import annotations

import os
import signal


def main() -> None:
    """Load the command line and run it."""
    try:
        from pipeline.cli.main import main as run
    except KeyboardInterrupt:
        os.write(2, b"kvlens: interrupted\n")
        os._exit(128 + signal.SIGINT)
    run()
