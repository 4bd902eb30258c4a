"""An engine with 10,000 batches in its buffer: asked for, and in the log, by the real connector."""

from __future__ import annotations

import asyncio
import os
import tempfile
import threading
import time
from pathlib import Path

import zmq
from connector import metric
from figures import Figures
from payloads import captures
from processes import cpu_seconds, launched

from pipeline.kafka import topics
from pipeline.local.processes.ports import free_port
from schemas.settings import Kafka, Settings

BATCHES = 10_000
ROUNDS = 3
END = b"\xff" * 8
START_SECONDS = 60.0
SETTLE_SECONDS = 5.0
"""Time to load what the connector loads beside its work."""


class BufferedEngine:
    """A ROUTER that once it is full answers one request with everything, and says when it came."""

    def __init__(self, payloads: list[bytes]) -> None:
        self._payloads = payloads
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._router = self._context.socket(zmq.ROUTER)
        self._router.setsockopt(zmq.SNDHWM, 0)
        self.endpoint = f"tcp://127.0.0.1:{self._router.bind_to_random_port('tcp://127.0.0.1')}"
        self.asked_at = 0.0
        self.full = threading.Event()
        self.asked = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        send = self._router.send_multipart
        while not self.asked.is_set() and self._router.poll(int(START_SECONDS * 1000)):
            identity, *_ = self._router.recv_multipart()
            if self.full.is_set():
                self.asked_at = time.monotonic()
                self.asked.set()
                for seq, payload in enumerate(self._payloads):
                    send([identity, b"", b"kv-events", seq.to_bytes(8, "big"), payload])
            send([identity, b"", b"", END, b""])

    def close(self) -> None:
        self._thread.join()
        self._context.destroy(0)


def _catch_up(bootstrap: str, prefix: str, replica: str, payloads: list[bytes]) -> tuple[float, float]:
    """Return (wall, CPU) seconds from the request to the last acknowledgement."""
    engine = BufferedEngine(payloads)
    with tempfile.TemporaryDirectory() as directory:
        port = free_port()
        config = Path(directory) / "kvlens.toml"
        config.write_text(
            f'[kafka]\nbootstrap_servers = "{bootstrap}"\ntopic_prefix = "{prefix}"\n'
            f"[connector]\nmetrics_port = {port}\ntail_seconds = 0.5\n"
            f'[[replicas]]\nid = "{replica}"\nmodel = "bench"\nendpoint = "tcp://127.0.0.1:{free_port()}"\n'
            f'replay_endpoint = "{engine.endpoint}"\n'
        )
        with launched(["connect", "--config", str(config)], dict(os.environ)) as process:
            time.sleep(SETTLE_SECONDS)
            engine.full.set()
            if not engine.asked.wait(START_SECONDS):
                raise SystemExit("the connector did not ask for a replay")
            before = cpu_seconds(process.pid)
            while (
                metric(port, "kvlens_connector_replayed_batches_total") < len(payloads)
                or metric(port, "kvlens_connector_unacknowledged_bytes") > 0
            ):
                if process.poll() is not None or time.monotonic() - engine.asked_at > 60:
                    raise SystemExit("the connector did not catch up")
                time.sleep(0.1)
            wall = time.monotonic() - engine.asked_at
            used = cpu_seconds(process.pid) - before
            lost = metric(port, "kvlens_connector_lost_batches_total")
    engine.close()
    if lost:
        raise SystemExit(f"{lost:.0f} batches were lost: the figure would be of fewer batches")
    return wall, used


def run(figures: Figures, bootstrap: str) -> None:
    """Measure with the captures' mix; the best of some rounds, as a round is short."""
    prefix = "bench-catch-up"
    asyncio.run(topics.apply(Settings(kafka=Kafka(bootstrap_servers=bootstrap, topic_prefix=prefix))))
    mix = [payload for capture in captures().values() for payload in capture]
    payloads = [mix[number % len(mix)] for number in range(BATCHES)]
    rounds = [_catch_up(bootstrap, prefix, f"vllm-{number}", payloads) for number in range(ROUNDS)]
    wall, used = min(rounds)
    name = f"connector, catching up {BATCHES:,} buffered batches"
    figures.add(f"{name}: rate", BATCHES / wall, "batches/s")
    figures.add(f"{name}: CPU", used / BATCHES * 1e6, "µs/batch")
