"""The example that posts what the doctor finds: once for each change, to whatever takes a text."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from pipeline.doctor.facts import Facts, KafkaFacts, StoreFacts
from pipeline.doctor.finding import Finding
from pipeline.doctor.report import as_json
from tests.support.checkout import ROOT

LOST = Finding(
    "batches-lost", "problem", "1 stream lost batches", "set replay_endpoint", ("a/0", *"bcdef", "g/0")
)
GONE = Finding("kafka-unavailable", "problem", "Kafka does not answer")
NOTE = Finding("idle", "note", "an engine is silent", "", ("a/0",))


class Channel:
    """A webhook, and the texts that were posted to it."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.status = 200
        channel = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                assert self.headers["Content-Type"] == "application/json"
                if channel.status == 200:
                    channel.texts.append(json.loads(body)["text"])
                self.send_response(channel.status)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def after(self, answer: str, state: Path) -> int:
        """Run the example on what the doctor printed; return its exit code."""
        return subprocess.run(
            [sys.executable, str(ROOT / "deploy/examples/doctor_webhook.py"), str(state)],
            input=answer,
            env={**os.environ, "WEBHOOK_URL": f"http://127.0.0.1:{self.server.server_port}/"},
            stderr=subprocess.DEVNULL,
            text=True,
            timeout=60,
            check=False,
        ).returncode


@pytest.fixture
def channel() -> Iterator[Channel]:
    channel = Channel()
    yield channel
    channel.server.shutdown()
    channel.server.server_close()


def answered(*findings: Finding) -> str:
    return json.dumps(as_json(Facts(0.0, (), KafkaFacts("kafka:9092"), StoreFacts("http://store")), findings))


def test_a_change_is_posted_once(channel: Channel, tmp_path: Path) -> None:
    state = tmp_path / "doctor.said"
    assert channel.after(answered(NOTE), state) == 0
    assert channel.texts == []
    for _ in range(2):
        assert channel.after(answered(LOST, NOTE), state) == 0
    assert channel.texts == [
        "kvlens: batches-lost: 1 stream lost batches (at a/0, b, c, d, e and 2 more). Do: set replay_endpoint"
    ]
    channel.after(answered(LOST, GONE), state)
    assert channel.texts[1].splitlines()[1] == "kvlens: kafka-unavailable: Kafka does not answer"
    channel.after(answered(), state)
    channel.after(answered(), state)
    assert channel.texts[2:] == ["kvlens: no problems any more"]


def test_a_doctor_that_ended_without_an_answer_is_a_problem(channel: Channel, tmp_path: Path) -> None:
    channel.after("", tmp_path / "said")
    assert channel.texts == ["kvlens: kvlens doctor gave no answer: run it by hand"]


def test_what_could_not_be_posted_is_posted_later(channel: Channel, tmp_path: Path) -> None:
    channel.status = 500
    assert channel.after(answered(GONE), tmp_path / "said") != 0
    channel.status = 200
    assert channel.after(answered(GONE), tmp_path / "said") == 0
    assert len(channel.texts) == 1
