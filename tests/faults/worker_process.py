"""Runs a worker with the settings (JSON) of standard input, as a process that tests can kill."""

import sys

import msgspec

from pipeline import agent
from pipeline.worker import run
from schemas.settings import Settings

if __name__ == "__main__":
    # The broker forgets a killed worker sooner than it would.
    agent.SESSION_SECONDS = float(sys.argv[1])
    run(msgspec.json.decode(sys.stdin.buffer.read(), type=Settings))
