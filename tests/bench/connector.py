"""The connector from socket to acknowledged record: CPU a frame, and the limits beside it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import zmq
from figures import Figures
from payloads import captures, large_events, multimodal_event
from processes import cpu_seconds, launched

from pipeline.kafka import topics
from pipeline.local.processes.ports import free_port
from schemas.settings import Kafka, Settings

FRAMES = 240_000
LARGE_FRAMES = 80_000
SETTLE_SECONDS = 120.0
IDLE_SHARE = 0.1
"""Of a core, below which a process counts as idle."""
Streams = Mapping[str, Sequence[bytes]]
"""Payloads by name of the stream."""


def multimodal(*, as_map: bool) -> Streams:
    """Return the event with multimodal features, 64 times with other content."""
    return {"multimodal": [multimodal_event(seed, as_map=as_map) for seed in range(64)]}


class Generator:
    """A process that publishes prebuilt payloads once everybody subscribed and `go` was called."""

    def __init__(self, streams: Streams, count: int, directory: Path) -> None:
        """`count` messages for each stream."""
        self.endpoints = {name: f"tcp://127.0.0.1:{free_port()}" for name in streams}
        file = directory / "streams.msgpack"
        file.write_bytes(
            msgspec.msgpack.encode([(self.endpoints[name], list(streams[name])) for name in streams])
        )
        script = str(Path(__file__).with_name("generator.py"))
        self._process = subprocess.Popen(
            [sys.executable, script, str(file), str(count)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def wait(self, word: str) -> None:
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        if line != word:
            raise SystemExit(f"the load generator said {line!r} instead of {word!r}")

    def go(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()


def metric(port: int, name: str) -> float:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as page:
        lines = page.read().decode().splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name))


def settled(pid: int) -> None:
    """Wait until a process has loaded (or, at its very first start, compiled) its code and does nothing."""
    deadline = time.monotonic() + SETTLE_SECONDS
    before = -1.0
    while cpu_seconds(pid) - before > IDLE_SHARE:
        if time.monotonic() > deadline:
            raise SystemExit("the connector does not come to rest")
        before = cpu_seconds(pid)
        time.sleep(1)


def _connector(
    bootstrap: str, streams: Streams, count: int, *, content_hashes: bool = False
) -> tuple[float, float]:
    """Return (CPU seconds, wall seconds) of a connector process from the first frame to the last ack."""
    with tempfile.TemporaryDirectory() as directory:
        generator = Generator(streams, count, Path(directory))
        port = free_port()
        config = Path(directory) / "kvlens.toml"
        config.write_text(
            f'[kafka]\nbootstrap_servers = "{bootstrap}"\ntopic_prefix = "bench-connector"\n'
            f"[connector]\nmetrics_port = {port}\ncontent_hashes = {str(content_hashes).lower()}\n"
            + "".join(
                f'[[replicas]]\nid = "{name}"\nmodel = "bench"\nendpoint = "{endpoint}"\n'
                for name, endpoint in generator.endpoints.items()
            )
        )
        with launched(["connect", "--config", str(config)], dict(os.environ)) as process:
            generator.wait("subscribed")
            settled(process.pid)
            idle, began = cpu_seconds(process.pid), time.monotonic()
            generator.go()
            while metric(port, "kvlens_connector_batches_total") < count * len(streams):
                if process.poll() is not None or time.monotonic() - began > 120:
                    raise SystemExit("the connector did not take every frame")
                time.sleep(0.25)
            while metric(port, "kvlens_connector_unacknowledged_bytes") > 0:
                time.sleep(0.05)
            wall = time.monotonic() - began
            used = cpu_seconds(process.pid) - idle
            lost = metric(port, "kvlens_connector_lost_batches_total")
        generator.stop()
    if lost:
        raise SystemExit(f"{lost:.0f} frames were lost: the figure would be of fewer frames")
    return used, wall


def _raw_receive(streams: Streams, count: int) -> float:
    """Return CPU seconds of a bare pyzmq loop that only receives."""
    with tempfile.TemporaryDirectory() as directory:
        generator = Generator(streams, count, Path(directory))
        context = zmq.Context()
        socket = context.socket(zmq.SUB)
        socket.setsockopt(zmq.RCVHWM, 0)
        socket.subscribe(b"")
        for endpoint in generator.endpoints.values():
            socket.connect(endpoint)
        generator.wait("subscribed")
        generator.go()
        began = time.process_time()
        for _ in range(count * len(streams)):
            socket.recv_multipart()
        used = time.process_time() - began
        socket.close(linger=0)
        context.term()
        generator.stop()
    return used


def run(figures: Figures, bootstrap: str) -> None:
    """Measure with all captures side by side, and with vLLM's own publisher benchmark's event."""
    settings = Settings(kafka=Kafka(bootstrap_servers=bootstrap, topic_prefix="bench-connector"))
    asyncio.run(topics.apply(settings))
    mix = captures()
    for name, streams, count, hashed in (
        ("captures' mix", mix, FRAMES // len(mix), True),
        ("32 blocks, 2,048 tokens", {"large": large_events()}, LARGE_FRAMES, False),
        (
            "the same with 3 multimodal features, array of 6,196 B",
            multimodal(as_map=False),
            LARGE_FRAMES,
            False,
        ),
        ("the same with 3 multimodal features, map of 6,294 B", multimodal(as_map=True), LARGE_FRAMES, True),
    ):
        total = count * len(streams)
        payloads = [payload for stream in streams.values() for payload in stream]
        size = sum(map(len, payloads)) / len(payloads)
        figures.add(f"connector, {name}: payload", size, "bytes")
        used, wall = _connector(bootstrap, streams, count)
        figures.add(f"connector, {name}: CPU from socket to ack", used / total * 1e6, "µs/frame")
        figures.add(f"connector, {name}: rate of one core", total / used, "frames/s/core")
        figures.add(f"connector, {name}: wall clock, everything on one machine", total / wall, "frames/s")
        if hashed:
            used, _ = _connector(bootstrap, streams, count, content_hashes=True)
            figures.add(f"connector, {name}: CPU with content hashes", used / total * 1e6, "µs/frame")
        raw = _raw_receive(streams, count)
        figures.add(f"limit, {name}: pyzmq receive only", total / raw, "frames/s/core")
