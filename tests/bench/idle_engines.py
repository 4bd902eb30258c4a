"""Many idle engines in one process: a PUB and a ROUTER socket each, and little traffic when told.

Started with a number of engines. Prints [[endpoint, replay endpoint], ...] as JSON, then obeys lines of
`batches-a-second seconds`, answering each with `done`: the engines take turns. Replays are answered from a
buffer, as engines do.
"""

from __future__ import annotations

import json
import sys
import time
from collections import deque

import zmq
from payloads import captures

BUFFERED = 100
END = b"\xff" * 8


class IdleEngine:
    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], payloads: list[bytes]) -> None:
        self._payloads = payloads
        self._seq = 0
        self._buffer: deque[tuple[bytes, bytes]] = deque(maxlen=BUFFERED)
        self._pub = context.socket(zmq.PUB)
        self.router = context.socket(zmq.ROUTER)
        self.ports = tuple(
            socket.bind_to_random_port("tcp://127.0.0.1") for socket in (self._pub, self.router)
        )

    def publish(self) -> None:
        batch = (self._seq.to_bytes(8, "big"), self._payloads[self._seq % len(self._payloads)])
        self._seq += 1
        self._buffer.append(batch)
        self._pub.send_multipart((b"kv-events", *batch))

    def answer(self) -> None:
        identity, _, first = self.router.recv_multipart()
        for seq, payload in self._buffer:
            if seq >= first:
                self.router.send_multipart((identity, b"", b"kv-events", seq, payload))
        self.router.send_multipart((identity, b"", b"", END, b""))


def main() -> None:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context(io_threads=1)
    context.set(zmq.MAX_SOCKETS, 16_384)
    streams = list(captures().values())
    engines = [IdleEngine(context, list(streams[n % len(streams)])) for n in range(int(sys.argv[1]))]
    print(
        json.dumps([[f"tcp://127.0.0.1:{port}" for port in engine.ports] for engine in engines]), flush=True
    )
    poller = zmq.Poller()
    poller.register(sys.stdin, zmq.POLLIN)
    by_socket = {engine.router: engine for engine in engines}
    for socket in by_socket:
        poller.register(socket, zmq.POLLIN)
    turn, until, per_second, next_at = 0, 0.0, 0.0, 0.0
    while True:
        busy = until > 0
        ready = dict(poller.poll(max(0, int((next_at - time.monotonic()) * 1000)) if busy else None))
        if sys.stdin.fileno() in ready:
            line = sys.stdin.readline()
            if not line:
                return
            per_second, seconds = map(float, line.split())
            until, next_at = time.monotonic() + seconds, time.monotonic()
        for socket in ready:
            if socket in by_socket:
                by_socket[socket].answer()
        now = time.monotonic()
        while busy and next_at <= now:
            engines[turn % len(engines)].publish()
            turn += 1
            next_at += 1 / per_second
        if busy and now >= until:
            until = 0.0
            print("done", flush=True)


main()
