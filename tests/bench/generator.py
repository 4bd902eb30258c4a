"""Load generator process: publishes prebuilt payloads, one PUB socket a stream, as fast as it can.

Started with a file of msgpack-encoded [[endpoint, payloads], ...] and the number of messages a stream.
Prebuilt bytes and no pacing, so that it is never what is measured; the sockets' queues are unbounded, so
that nothing is dropped.
"""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
import zmq

CHUNK = 64


def say(word: str) -> None:
    sys.stdout.write(word + "\n")
    sys.stdout.flush()


def main() -> None:
    streams: list[tuple[str, list[bytes]]] = msgspec.msgpack.decode(
        Path(sys.argv[1]).read_bytes(), type=list[tuple[str, list[bytes]]]
    )
    count = int(sys.argv[2])
    context = zmq.Context()
    sockets = []
    for endpoint, _ in streams:
        socket = context.socket(zmq.XPUB)
        socket.setsockopt(zmq.SNDHWM, 0)
        socket.bind(endpoint)
        sockets.append(socket)
    for socket in sockets:
        socket.recv()  # the subscription
    say("subscribed")
    sys.stdin.readline()
    numbers = [seq.to_bytes(8, "big") for seq in range(count)]
    for start in range(0, count, CHUNK):
        for socket, (_, payloads) in zip(sockets, streams, strict=True):
            send, total = socket.send, len(payloads)
            for seq in range(start, min(start + CHUNK, count)):
                send(b"kv-events", zmq.SNDMORE)
                send(numbers[seq], zmq.SNDMORE)
                send(payloads[seq % total])
    sys.stdin.readline()
    for socket in sockets:
        socket.close(linger=0)


main()
