"""Process of load that is in no hurry to be live: minutes of records, in Kafka as fast as they can be made.

Started with the broker, the topic, a number of replicas, and the lengths of the backlogs in seconds. After
`open` it writes what the replicas hold and says `opened`; after each `write` it writes the next backlog and
says `written` with the number of its records. The event times of a backlog end when its writing
begins, and it waits for that until they follow those of the one before; nobody waits for the first one.
"""

from __future__ import annotations

import asyncio
import sys
import time

from large_fleet import LargeEngine

from fleet_load.pace import say, wait_for
from fleet_load.records import STEPS_A_SECOND, Log, opened, prepared
from fleet_load.replicas import BLOCKS, RECORDS_A_SECOND

_TURNS = STEPS_A_SECOND // RECORDS_A_SECOND


async def main() -> None:
    bootstrap, topic, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    lengths = [int(seconds) for seconds in sys.argv[4:]]
    engines = [LargeEngine(number, BLOCKS, count) for number in range(count)]
    log = Log(bootstrap, topic)
    async with log.producer:
        wait_for("open")
        end = time.time() - lengths[0]
        await opened(log, [[prepared(record) for record in engine.opened()] for engine in engines], end)
        say("opened")
        for seconds in lengths:
            wait_for("write")
            await asyncio.sleep(max(0.0, end + seconds - time.time()))
            end = time.time()
            records = 0
            for second in range(seconds):
                records += await _second(log, engines, end - seconds + second)
            say(f"written {records}")


async def _second(log: Log, engines: list[LargeEngine], began: float) -> int:
    """Write a second as connectors write it: in 40 steps, a quarter of the replicas in each."""
    lives = [
        [prepared(record) for record in engine.little_records(engine.exchanged(1.0), began)]
        for engine in engines
    ]
    sent = []
    for step in range(STEPS_A_SECOND):
        number, turn = divmod(step, _TURNS)
        at = began + step / STEPS_A_SECOND
        sent += await log.write((life[number] for life in lives[turn::_TURNS]), at)
    await asyncio.gather(*sent)
    return sum(map(len, lives))


if __name__ == "__main__":
    asyncio.run(main())
