"""Runs a worker with the settings (JSON) of standard input, as a process that tests can kill."""

import sys

import msgspec

from pipeline.worker import run
from schemas.settings import Settings

if __name__ == "__main__":
    run(msgspec.json.decode(sys.stdin.buffer.read(), type=Settings))
