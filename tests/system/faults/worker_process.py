"""Runs a worker with the settings (JSON) of standard input, as a process that tests can kill.

Arguments: the session's seconds; a file, or nothing: while it exists, Faust's consumers wait between meeting
the broker and asking it for topics; optionally, seconds between two bases of the fleet agent.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import msgspec
from aiokafka import AIOKafkaConsumer

from pipeline.fleet import snapshot
from pipeline.worker import agent
from pipeline.worker.lifecycle import run
from schemas.settings import Settings


def _wait_before_topics(file: Path) -> None:
    start = AIOKafkaConsumer.start

    async def start_and_wait(consumer: AIOKafkaConsumer) -> None:
        await start(consumer)
        if consumer._group_id is not None:
            sys.stdout.write("consumer met the broker\n")
            sys.stdout.flush()
            while file.exists():  # noqa: ASYNC110, ASYNC240 - how the test lets it go on
                await asyncio.sleep(0.02)

    AIOKafkaConsumer.start = start_and_wait


if __name__ == "__main__":
    # The broker forgets a killed worker sooner than it would.
    agent.SESSION_SECONDS = float(sys.argv[1])
    if sys.argv[2]:
        _wait_before_topics(Path(sys.argv[2]))
    if sys.argv[3:]:
        snapshot.MAX_SECONDS = float(sys.argv[3])
    run(msgspec.json.decode(sys.stdin.buffer.read(), type=Settings))
