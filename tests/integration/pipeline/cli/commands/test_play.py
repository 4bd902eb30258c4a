"""`kvlens play` and `record` against plain ZMQ sockets: the recorded bytes arrive, and again by replay."""

from __future__ import annotations

import gzip
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
import zmq

from pipeline.recordings.format import Frame, RecordedSource, Recording, RecordingWriter
from tests.support.checkout import ROOT
from tests.support.processes import KVLENS, started

CAPTURE = ROOT / "tests" / "captures" / "vllm-0.25.1-map-dp0.frames.msgpack.gz"
BATCHES = msgspec.msgpack.decode(gzip.decompress(CAPTURE.read_bytes()))
END = b"\xff" * 8


@contextmanager
def kvlens(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "pipeline.cli.main", *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def addresses(process: subprocess.Popen[str]) -> tuple[str, str | None]:
    """Where it says that it publishes, and replays."""
    assert process.stdout is not None
    words = process.stdout.readline().replace(",", "").split()
    assert words[:2] == ["publishing", "on"]
    return words[2], words[5] if len(words) > 3 else None


@pytest.fixture
def context() -> Iterator[zmq.Context]:
    with zmq.Context() as made:
        made.setsockopt(zmq.LINGER, 0)
        yield made


def receive(socket: zmq.Socket, count: int) -> list[list[bytes]]:
    socket.RCVTIMEO = 60_000
    return [socket.recv_multipart() for _ in range(count)]


@pytest.mark.parametrize("frames", [2, 3])
def test_the_recorded_bytes_are_published_and_replayed(context: zmq.Context, frames: int):
    with kvlens(
        *("play", str(CAPTURE), "--endpoint", "tcp://127.0.0.1:*", "--replay-endpoint", "tcp://127.0.0.1:*"),
        *("--speed", "max", "--replay-frames", str(frames), "--linger", "60"),
    ) as player:
        endpoint, replay_endpoint = addresses(player)
        assert replay_endpoint is not None
        with context.socket(zmq.SUB) as subscriber, context.socket(zmq.DEALER) as dealer:
            subscriber.connect(endpoint)
            subscriber.subscribe(b"")
            assert receive(subscriber, len(BATCHES)) == BATCHES
            dealer.connect(replay_endpoint)
            first = len(BATCHES) - 40
            dealer.send_multipart([b"", first.to_bytes(8, "big")])
            replayed = receive(dealer, 41)
        topic = 1 if frames == 3 else 0
        expected = [[b"", *batch[1 - topic :]] for batch in BATCHES[first:]]
        assert replayed == [*expected, [b"", *[b""] * topic, END, b""]]


def test_the_pace_is_the_recorded_one_times_the_factor(context: zmq.Context, tmp_path: Path):
    path = tmp_path / "slow.kvrec"
    with RecordingWriter(path, (RecordedSource(),)) as writer:
        for number in range(5):
            writer.write(Frame(0, 100.0 + 3600.0 * number, (b"t", number.to_bytes(8, "big"), b"x")))
    with kvlens("play", str(path), "--endpoint", "tcp://127.0.0.1:*", "--speed", "14400") as player:
        endpoint, _ = addresses(player)
        with context.socket(zmq.SUB) as subscriber:
            begun = time.monotonic()  # it waits for a subscriber
            subscriber.connect(endpoint)
            subscriber.subscribe(b"")
            receive(subscriber, 5)
            # At the recorded pace it would be four hours.
            assert 1.0 <= time.monotonic() - begun < 600.0


def test_it_says_that_it_waits_for_a_subscriber_and_ends_on_a_signal_meanwhile(tmp_path: Path):
    log = tmp_path / "log"
    player = started([*KVLENS, "play", str(CAPTURE), "--endpoint", "tcp://127.0.0.1:*"], log, cwd=tmp_path)
    try:
        player.wait_said("waiting for a subscriber; --wait-subscribers 0 plays at once")
        player.send(signal.SIGINT)
        assert player.process.wait(60) == 0
        assert player.said().splitlines()[-1] == "played 0 batches"
    finally:
        player.close()


def test_one_source_of_several_can_be_played(context: zmq.Context, tmp_path: Path):
    path = tmp_path / "two.kvrec"
    with RecordingWriter(path, (RecordedSource("a"), RecordedSource("b"))) as writer:
        for number in range(6):
            writer.write(Frame(number % 2, float(number), (b"", number.to_bytes(8, "big"), b"x")))
    with kvlens(
        *("play", str(path), "--endpoint", "tcp://127.0.0.1:*", "--source", "1", "--speed", "max")
    ) as player:
        endpoint, _ = addresses(player)
        with context.socket(zmq.SUB) as subscriber:
            subscriber.connect(endpoint)
            subscriber.subscribe(b"")
            assert [int.from_bytes(parts[1], "big") for parts in receive(subscriber, 3)] == [1, 3, 5]
        assert player.wait(60) == 0
        assert player.stdout is not None
        assert player.stdout.read() == "played 3 batches\n"


def test_what_is_played_can_be_recorded_and_a_killed_recorder_leaves_whole_frames(tmp_path: Path):
    with kvlens("play", str(CAPTURE), "--endpoint", "tcp://127.0.0.1:*", "--speed", "max") as player:
        endpoint, _ = addresses(player)
        path = tmp_path / "again.kvrec"
        with kvlens("record", str(path), "--endpoint", endpoint) as recorder:
            assert player.wait(60) == 0
            deadline = time.monotonic() + 60
            while count(path) < len(BATCHES) and time.monotonic() < deadline:
                time.sleep(0.2)
            recorder.kill()
    with Recording(path) as recording:
        assert [list(frame.parts) for frame in recording.frames()] == BATCHES
        assert [source.endpoint for source in recording.sources] == [endpoint]


def count(path: Path) -> int:
    if not path.exists():
        return 0
    with Recording(path) as recording:
        return sum(1 for _ in recording.frames())
