"""`kvlens analyze` against what the engines themselves held at every sequence number."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from click.testing import CliRunner

from pipeline.cli.failures import Failure, reading
from pipeline.cli.main import kvlens
from pipeline.recordings.format import Frame, RecordedSource, Recording, RecordingWriter
from tests.support.checkout import CAPTURES
from tests.support.inputs.captures import NAMES, captured_truth
from tests.support.suite.night import first_by_day


def run(*arguments: str) -> str:
    result = CliRunner().invoke(kvlens, ["analyze", *arguments], catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


def truth(name: str) -> dict:
    return captured_truth(name)


def capture(name: str) -> str:
    return str(CAPTURES / f"{name}.frames.msgpack.gz")


def test_the_captures_are_there():
    assert len(NAMES) == 8


@pytest.mark.parametrize("name", first_by_day(NAMES, 3))
def test_every_batch_equals_the_engine(name: str):
    expected = truth(name)
    pages = "page_size" in expected
    lines = [json.loads(line) for line in run(capture(name), "--every-batch").splitlines()]
    assert [line["seq"] for line in lines] == [row[0] for row in expected["checkpoints"]]
    for line, row in zip(lines, expected["checkpoints"], strict=True):
        gpu = line["media"].get("gpu", {"physical": 0, "distinct": 0})
        held = [gpu["physical"]] if pages else [gpu["distinct"], gpu["physical"]]
        assert held == row[1 : 1 + len(held)], f"seq {row[0]}"


@pytest.mark.parametrize("name", NAMES)
def test_the_summary_equals_the_final_state(name: str):
    expected = truth(name)
    pools = json.loads(run(capture(name), "--json"))
    assert {(pool["replica"], pool["dp_rank"], pool["trust"]) for pool in pools} == {(name, 0, "complete")}
    copies: dict[int, Counter[int | str]] = {}
    for row in expected["final_cached"]:
        # SGLang's rows are pages: [name space, hash].
        group, block, count = (0, row[1], 1) if "page_size" in expected else row
        copies.setdefault(group, Counter())[block] += count
    final = {group: [sum(counts.values()), len(counts)] for group, counts in copies.items()}
    gpu = {pool["group_idx"]: pool for pool in pools if pool["medium"] == "gpu"}
    assert {group: [pool["physical"], pool["distinct"]] for group, pool in gpu.items()} == final
    for pool in pools:
        assert pool["stored"] - pool["removed"] - pool["cleared"] == pool["physical"]
    if "offload" in expected:
        cpu = [pool["distinct"] for pool in pools if pool["medium"] == "cpu"]
        assert cpu == [len(expected["offload"]["final_ready"])]


def test_a_recording_of_two_sources_names_them_and_a_torn_end_is_told(tmp_path: Path):
    path = tmp_path / "two.kvrec"
    with RecordingWriter(path, (RecordedSource("a", 0, "m"), RecordedSource("a", 1, "m"))) as writer:
        for source, name in enumerate(("vllm-0.25.1-map-dp0", "vllm-0.25.1-map-dp1")):
            with Recording(Path(capture(name))) as recording:
                for frame in recording.frames():
                    writer.write(Frame(source, frame.received_at, frame.parts))
    path.write_bytes(path.read_bytes()[:-3])
    result = CliRunner().invoke(kvlens, ["analyze", str(path), "--every-batch"], catch_exceptions=False)
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert result.stderr == f"kvlens: {path}: ends inside a frame; everything before it was read\n"
    for rank, name in enumerate(("vllm-0.25.1-map-dp0", "vllm-0.25.1-map-dp1")):
        rows = truth(name)["checkpoints"]
        got = [
            [line["seq"], line["media"]["gpu"]["distinct"], line["media"]["gpu"]["physical"]]
            for line in lines
            if line["source"] == f"a/{rank}"
        ]
        assert got == [row[:3] for row in rows[: len(rows) - rank]]
    table = run(str(path)).splitlines()
    assert table[0].split() == (
        ["source", "medium", "group", "entries", "blocks", "tokens", "stored", "removed", "cleared", "trust"]
    )
    assert [line.split()[:3] for line in table[1:]] == [["a/0", "gpu", "0"], ["a/1", "gpu", "0"]]


def test_a_reader_of_the_output_that_goes_away_is_no_fault_of_the_file():
    with pytest.raises(BrokenPipeError), reading("engine.kvrec"):
        raise BrokenPipeError
    with pytest.raises(Failure, match=r"^engine.kvrec: no such device$"), reading("engine.kvrec"):
        raise OSError(19, "no such device")
