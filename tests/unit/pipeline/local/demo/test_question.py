"""The demo's question: the hashes are those that its engines announce, and the answer is one line."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from itertools import islice
from pathlib import Path

import pytest

from pipeline.local.demo import question
from pipeline.local.demo.fleet import GROUPS, TIERED_TRAFFIC
from pipeline.local.demo.question import answer_line, prompt_hashes
from pipeline.local.processes.command import page_answers
from pipeline.simulator.engine.settings import EngineSettings
from pipeline.simulator.traffic.workload import arrivals
from pipeline.simulator.wire.hashing import chain_digests, seed_digest


def test_the_hashes_are_those_of_prompts_that_clients_send() -> None:
    options = GROUPS[0].options
    assert options[options.index("--seed") + 1] == str(TIERED_TRAFFIC.seed)
    hashes = prompt_hashes()
    assert len(hashes) == TIERED_TRAFFIC.system_prompt_tokens // 16
    begins = 0
    for _, request in islice(arrivals(TIERED_TRAFFIC), 40):
        digests = chain_digests(seed_digest(EngineSettings().hash_seed), request.prompt, 16)
        begins += [int.from_bytes(digest[-8:], "big") for digest in digests[: len(hashes)]] == hashes
    assert begins >= 10, "the most common of eight"


def test_an_answer_is_one_line() -> None:
    answer = {
        "instances": {"b": {"longest_matched": 64}, "a": {"longest_matched": 256}},
        "index": {"age_seconds": 0.04},
    }
    assert answer_line(answer, 256) == "a 256, b 64, of 256 tokens; as of 0.0 s ago"
    assert answer_line({**answer, "instances": {}}, 256) == "nobody, of 256 tokens; as of 0.0 s ago"


def test_what_is_no_http_is_no_answer(tmp_path: Path) -> None:
    def greet() -> None:
        for _ in range(2):
            greeted, _ = taken.accept()
            with greeted:
                greeted.sendall(b"220 mail.example ESMTP\r\n")
                greeted.recv(1 << 16)

    with socket.create_server(("127.0.0.1", 0)) as taken:
        threading.Thread(target=greet, daemon=True).start()
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/"
        assert not page_answers(url)
        assert question.IndexQuestion(tmp_path, url, "").ask() is None


class _Index(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        answer = json.dumps({"instances": {"a": {"longest_matched": 64}}, "index": {"age_seconds": 0.2}})
        self.send_response(200)
        self.end_headers()
        self.wfile.write(answer.encode())

    def log_message(self, format: str, *args: object) -> None: ...


def test_an_index_that_answered_once_is_not_starting(
    tmp_path: Path, free_port: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(question, "_SECONDS", 30.0)
    port = free_port()
    asked = question.IndexQuestion(tmp_path, f"http://127.0.0.1:{port}/", "")
    assert asked.answer_line() == "the index is starting"
    with HTTPServer(("127.0.0.1", port), _Index) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        assert asked.answer_line() == "a 64, of 256 tokens; as of 0.2 s ago"
        thread.join()
    assert asked.answer_line() == "the index does not answer; see index.log"
