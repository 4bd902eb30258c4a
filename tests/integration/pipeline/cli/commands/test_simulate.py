"""`kvlens simulate` as a process."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import zmq
from click.testing import CliRunner

from pipeline.cli.commands.simulate import simulate
from tests.support.checkout import ROOT, TRACES

SLICE = TRACES / "mooncake_conversation_1500.jsonl.gz"
NO_TIMES = ROOT / "tests" / "data" / "traces" / "no_times.jsonl"
COMMAND = [sys.executable, "-c", "from pipeline.cli.commands.simulate import simulate; simulate()"]


def test_it_says_when_it_is_ready_and_stops_on_a_signal_with_its_truth(
    tmp_path: Path, free_port: Callable[..., int], context: zmq.Context[zmq.Socket[bytes]]
) -> None:
    port, replay_port = free_port(2), free_port(2)
    options = ["--replicas", "2", "--base-port", str(port), "--replay-base-port", str(replay_port)]
    options += ["--metrics-port", "0", "--rate", "30"]
    files = ["--truth-dir", str(tmp_path / "truth"), "--write-config", str(tmp_path / "kvlens.toml")]
    process = subprocess.Popen([*COMMAND, *options, *files], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        word, endpoints = process.stdout.readline().split(" ", 1)
        assert word == "ready"
        assert json.loads(endpoints) == [f"tcp://127.0.0.1:{port + n}" for n in range(2)]
        for endpoint in json.loads(endpoints):
            subscriber = context.socket(zmq.SUB)
            subscriber.setsockopt(zmq.SUBSCRIBE, b"")
            subscriber.connect(endpoint)
            assert subscriber.poll(120_000), "no batch comes"
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=240)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0
    batches = [
        json.loads(path.read_text())["lives"][0]["last_seq"] + 1
        for path in sorted((tmp_path / "truth").glob("sim-*-dp0.truth.json"))
    ]
    assert len(batches) == 2
    assert output == f"stopped: {sum(batches)} batches from 2 sources\n"
    assert (tmp_path / "kvlens.toml").read_text().count("[[replicas]]") == 2


def test_a_trace_prints_its_hit_rates_and_ends(tmp_path: Path) -> None:
    options = ["--trace", str(SLICE), "--replicas", "4", "--base-port", "0", "--metrics-port", "-1"]
    process = subprocess.run(
        [*COMMAND, *options, "--truth-dir", str(tmp_path)], capture_output=True, text=True, timeout=120
    )
    assert process.returncode == 0, process.stderr
    ready = json.loads(process.stdout.splitlines()[0].removeprefix("ready "))
    assert process.stderr == (
        "trace: blocks of 512 tokens (from input_length ÷ ids), "
        "times in milliseconds, assumed: they are whole numbers (--time-unit)\n"
        f"`kvlens record engine.kvrec --endpoint {ready[0]}` records one of them; "
        "with --write-config FILE, `kvlens up --config FILE` reads all\n"
    )
    truth = json.loads((tmp_path / "trace.truth.json").read_text())
    assert process.stdout.splitlines()[-1] == (
        f"played: 1500 requests, hits {truth['block_hit_rate']:.2%} of blocks, "
        f"{truth['token_hit_rate']:.2%} of tokens"
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--base-port", "0", "--dp-ranks", "2"], "consecutive ports"),
        (["--base-port", "0", "--metrics-port", "-1", "--wait-subscribers", "0.05"], "had a subscriber"),
        (
            ["--trace", str(SLICE), "--budget", "5", "--base-port", "0", "--metrics-port", "-1"],
            "blocks wanted, 5",
        ),
        (["--trace", str(SLICE), "--trace-block-size", "16"], "line 1: 6,758 tokens in 14 blocks is not"),
        (["--trace", str(NO_TIMES), "--speed", "2"], "the trace has no times, so --speed cannot be kept"),
        (
            ["--host", "elsewhere", "--metrics-port", "-1"],
            "cannot listen on tcp://elsewhere:5557: no address of this machine",
        ),
        (["--era", "vllm-0.1"], "'vllm-0.1' is not one of"),
    ],
)
def test_mistakes_are_told_in_one_line(options: list[str], message: str) -> None:
    answer = CliRunner().invoke(simulate, options)
    assert answer.exit_code != 0
    assert message in answer.output.splitlines()[-1]
