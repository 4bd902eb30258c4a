"""Process of load for the connector: a PUB socket for each replica, prebuilt frames, 20 a second each.

Started with a number of replicas. Says `ready` and the endpoints, publishes for some seconds after `go`, and
ends when its input does.
"""

from __future__ import annotations

import random
import struct
import sys
import time

import zmq
from large_fleet import BLOCKS_A_BATCH

from fleet_load.pace import Pace, say, wait_for
from fleet_load.replicas import BATCHES_A_SECOND, LOAD_SECONDS
from pipeline.simulator.engine.events import Removed, Stored
from pipeline.simulator.wire.encoding import encoded_batch
from pipeline.simulator.wire.eras import ERAS

ERA = ERAS["vllm-0.33"]
BLOCK_SIZE = 16
PAYLOADS = 512
HELD = 400
"""Batches whose blocks a replica holds."""
STEPS_A_SECOND = 200
"""Ten for each batch of a replica: the replicas publish one after the other."""
_TIME_AT = 2
"""Where the time is in a payload, behind the head of the array and the mark of a float."""


def payloads() -> list[bytes]:
    """Return batches of two stored events of four blocks, without the eight that came `HELD` batches ago.

    A stream that goes through them again and again removes what it holds.
    """
    rng = random.Random(7)
    stored = [(_stored(rng), _stored(rng)) for _ in range(PAYLOADS)]
    result = []
    for number, came in enumerate(stored):
        first, second = stored[number - HELD]
        gone = Removed(first.digests + second.digests)
        result.append(encoded_batch(ERA, 0.0, [*came, gone]))
    return result


def _stored(rng: random.Random) -> Stored:
    blocks = BLOCKS_A_BATCH // 2
    tokens = tuple(rng.randrange(100_000) for _ in range(blocks * BLOCK_SIZE))
    return Stored(_digests(rng, blocks), rng.randbytes(32), tokens, BLOCK_SIZE)


def _digests(rng: random.Random, count: int) -> tuple[bytes, ...]:
    return tuple(rng.randbytes(32) for _ in range(count))


def main() -> None:
    count = int(sys.argv[1])
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    context.set(zmq.MAX_SOCKETS, 16_384)
    sockets = []
    for _ in range(count):
        socket = context.socket(zmq.PUB)
        socket.setsockopt(zmq.SNDHWM, 0)
        sockets.append(socket)
    endpoints = [f"tcp://127.0.0.1:{socket.bind_to_random_port('tcp://127.0.0.1')}" for socket in sockets]
    tails = [payload[_TIME_AT + 8 :] for payload in payloads()]
    head, packed = payloads()[0][:_TIME_AT], struct.Struct(">d").pack
    steps_a_batch = STEPS_A_SECOND // BATCHES_A_SECOND
    say("ready " + " ".join(endpoints))
    wait_for("go")
    pace = Pace(STEPS_A_SECOND)
    for step in range(LOAD_SECONDS * STEPS_A_SECOND):
        time.sleep(pace.pause())
        number, turn = divmod(step, steps_a_batch)
        seq, start = number.to_bytes(8, "big"), head + packed(time.time())
        for index in range(turn, count, steps_a_batch):
            send = sockets[index].send
            send(b"kv-events", zmq.SNDMORE)
            send(seq, zmq.SNDMORE)
            send(start + tails[(number + index) % PAYLOADS])
    pace.done()
    sys.stdin.readline()
    context.destroy(linger=0)


if __name__ == "__main__":
    main()
