"""Engines that are read by their names, in a process of its own which sees a hosts file of its own.

Run as a module it prints, as JSON, which of the engines each way of reading them has read.
"""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import zmq

HOSTS = {
    "only-4": ["127.0.0.1"],
    "only-6": ["::1"],
    "both": ["::1", "127.0.0.1"],
}
ENGINES = [("only-4", "127.0.0.1"), ("only-6", "::1"), ("both", "127.0.0.1"), ("both", "::1")]
"""Name, and the address that its engine listens on."""
LIMIT_SECONDS = 120.0


def read_by_name(python: str = sys.executable) -> dict[str, list[int]]:
    """Return which engines were read, by number, as `subscriber`, `recorder` and `replay`."""
    with tempfile.NamedTemporaryFile("w", suffix=".hosts") as hosts:
        hosts.writelines(f"{address} {name}\n" for name, found in HOSTS.items() for address in found)
        hosts.flush()
        script = f"mount --bind {hosts.name} /etc/hosts && exec {shlex.join([python, '-m', __name__])}"
        rights = [] if os.geteuid() == 0 else ["--map-root-user"]
        done = subprocess.run(
            ["unshare", *rights, "--mount", "sh", "-c", script],
            capture_output=True,
            text=True,
            timeout=3 * LIMIT_SECONDS,
        )
    assert done.returncode == 0, done.stderr
    found: dict[str, list[int]] = json.loads(done.stdout)
    return found


@contextmanager
def engines() -> Iterator[tuple[list[str], list[str]]]:
    """Give the endpoints of events and of replay, by names."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    stop = threading.Event()
    events, replays, threads = [], [], []
    for name, address in ENGINES:
        host = f"[{address}]" if ":" in address else address
        pair = [context.socket(zmq.PUB), context.socket(zmq.ROUTER)]
        for socket, endpoints in zip(pair, (events, replays), strict=True):
            socket.setsockopt(zmq.IPV6, int(":" in address))
            endpoints.append(f"tcp://{name}:{socket.bind_to_random_port(f'tcp://{host}')}")
        threads.append(threading.Thread(target=_serve, args=(*pair, stop), daemon=True))
        threads[-1].start()
    try:
        yield events, replays
    finally:
        stop.set()
        for thread in threads:
            thread.join(10)
        context.term()


def _serve(events: zmq.Socket[bytes], replay: zmq.Socket[bytes], stop: threading.Event) -> None:
    seq = 0
    while not stop.is_set():
        events.send_multipart([b"", seq.to_bytes(8, "big"), b"payload"])
        seq += 1
        if replay.poll(50):
            identity, *_ = replay.recv_multipart()
            replay.send_multipart([identity, b"", (7).to_bytes(8, "big"), b"payload"])
            replay.send_multipart([identity, b"", (-1).to_bytes(8, "big", signed=True), b""])
    events.close(0)
    replay.close(0)


async def by_subscriber(endpoints: list[str]) -> list[int]:
    from connectors.receive.received import Together
    from connectors.receive.subscriber import Subscriber

    subscriber = Subscriber(hand_over_bytes=1 << 20, together=False, refused=lambda refusal: None)
    subscriber.start()
    for number, endpoint in enumerate(endpoints):
        subscriber.add((str(number), 0), endpoint)
    found: set[int] = set()
    deadline = time.monotonic() + LIMIT_SECONDS
    while len(found) < len(endpoints) and time.monotonic() < deadline:
        await subscriber.hand_over.wait(0.2)
        while (received := subscriber.hand_over.take()) is not None:
            assert not isinstance(received, Together)
            found.add(int(received.source[0]))  # type: ignore[arg-type]
            subscriber.hand_over.release(received.size)
    subscriber.stop(0.0)
    await subscriber.join(60.0)
    return sorted(found)


def by_recorder(endpoints: list[str]) -> list[int]:
    from pipeline.recordings.format import Frame
    from pipeline.recordings.recorder import Recorder

    recorder = Recorder(endpoints, [""] * len(endpoints))
    found: set[int] = set()

    def write(frame: Frame) -> None:
        found.add(frame.source)
        if len(found) == len(endpoints):
            recorder.stop()

    recorder.run(write, lambda: None, seconds=LIMIT_SECONDS)
    recorder.close()
    return sorted(found)


async def by_replay(endpoints: list[str]) -> list[int]:
    from connectors.replay.client import Replayer

    replayer = Replayer(timeout_seconds=30.0)
    found = []
    for number, endpoint in enumerate([*endpoints, *endpoints]):  # the second time the kind is known
        batches: list[tuple[int, bytes]] = []

        async def take(came: list[tuple[int, bytes]], to: list[tuple[int, bytes]] = batches) -> bool:
            to += came
            return True

        connection = await replayer.connect(endpoint)
        if connection is not None:
            if await connection.replay(0, take) == "end" and batches == [(7, b"payload")]:
                found.append(number)
            connection.close()
    replayer.close()
    return found


def main() -> None:
    with engines() as (events, replays):
        found = {
            "subscriber": asyncio.run(by_subscriber(events)),
            "recorder": by_recorder(events),
            "replay": asyncio.run(by_replay(replays)),
        }
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main()
