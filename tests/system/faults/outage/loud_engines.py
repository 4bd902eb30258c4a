"""Engines in a process of their own that publish whoever listens, and drop what is not taken.

Started with JSON: {"buffers": [steps, ...], "blocks": N, "per_second": N}, one engine for each number of
buffered steps. Prints [[endpoint, replay endpoint], ...] and publishes, the engines in turns, from the first
line of stdin on; at the second it stops and prints how many batches each published. Replays are answered
until stdin ends. Batch `seq` of engine `n` stores the blocks `first_block(n, seq)` and following.
"""

from __future__ import annotations

import json
import select
import sys
import time

import msgspec
import zmq

from pipeline.simulator.publisher import Publisher, PublisherSettings

SEND_HWM = 200
"""Small, so that an outage of seconds does what one of minutes does to the default."""


def first_block(engine: int, seq: int, blocks: int) -> int:
    return (engine << 48) + seq * blocks


def _say(value: object) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


def main() -> None:
    settings = json.loads(sys.argv[1])
    blocks = settings["blocks"]
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    anywhere = "tcp://127.0.0.1:0"
    engines = [
        Publisher(PublisherSettings(anywhere, anywhere, buffer_steps=steps, send_hwm=SEND_HWM), context)
        for steps in settings["buffers"]
    ]
    _say([[engine.endpoint, engine.replay_endpoint] for engine in engines])
    sys.stdin.readline()
    turn, next_at = 0, time.monotonic()
    while not select.select([sys.stdin], [], [], 0)[0]:
        pause = next_at - time.monotonic()
        if pause > 0.001:
            time.sleep(pause)
        for _ in range(8):
            number = turn % len(engines)
            first = first_block(number, engines[number].published, blocks)
            stored = ["BlockStored", list(range(first, first + blocks)), None, [], 16, None, "GPU", None]
            engines[number].publish(msgspec.msgpack.encode([time.time(), [stored], 0]))
            turn += 1
        next_at += 8 / settings["per_second"]
    sys.stdin.readline()
    _say([engine.published for engine in engines])
    sys.stdin.read()


if __name__ == "__main__":
    main()
