"""Runs a worker with the settings (JSON) of standard input, as a process that tests can kill.

It says each function that is compiled, or whose kept code is loaded, when that happens.
Arguments: the session's seconds; optionally a file, or nothing: while it exists, Faust's consumers wait
between meeting the broker and asking it for topics; optionally, seconds between two bases of the fleet agent.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import msgspec
from aiokafka import AIOKafkaConsumer
from numba.core.dispatcher import Dispatcher

from pipeline.fleet import snapshot
from pipeline.worker.consumer import app
from pipeline.worker.lifecycle import run
from schemas.settings import Settings


def _say_what_is_compiled() -> None:
    compile_for = Dispatcher.compile

    def say_and_compile(function: Dispatcher, signature: Any) -> Any:
        sys.stdout.write(f"compiled {function.py_func.__module__}.{function.py_func.__name__}{signature}\n")
        sys.stdout.flush()
        return compile_for(function, signature)

    Dispatcher.compile = say_and_compile


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
    app.SESSION_SECONDS = float(sys.argv[1])
    # Whoever joins waits for the others' next one.
    app.HEARTBEAT_SECONDS = 0.5
    _say_what_is_compiled()
    if any(sys.argv[2:3]):
        _wait_before_topics(Path(sys.argv[2]))
    if sys.argv[3:]:
        snapshot.MAX_SECONDS = float(sys.argv[3])
    run(msgspec.json.decode(sys.stdin.buffer.read(), type=Settings))
