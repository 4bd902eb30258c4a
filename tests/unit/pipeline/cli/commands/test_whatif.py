"""`kvlens whatif` on a part of the conversation trace, on captures of engines, and on what it must refuse."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from pipeline.cli import failures
from pipeline.cli.main import kvlens
from pipeline.recordings.format import Frame, RecordedSource, Recording, RecordingWriter, published_at
from tests.support.checkout import ROOT
from tests.support.inputs.captures import captured_frames, captured_truth
from tests.support.slow_lru import SlowLru

TESTS = ROOT / "tests"
SLICE = TESTS / "data" / "simulator" / "mooncake_conversation_1500.jsonl.gz"
TRACES = TESTS / "data" / "traces"
CAPTURE = TESTS / "captures" / "vllm-0.33.0-map.frames.msgpack.gz"


def answered(*arguments: object) -> str:
    result = CliRunner().invoke(kvlens, ["whatif", *map(str, arguments)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def rows(*arguments: object) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(answered(*arguments, "--json"))["rows"]
    return found


def test_the_table_has_a_row_for_each_combination() -> None:
    lines = answered(
        SLICE, "--replicas", "4,1", "--capacity", "2000,1024000t,none", "--routing", "sticky,random"
    )
    summary, times, sticky, blank, header, *table = lines.splitlines()
    assert summary == (
        "1,500 requests in 8 min look up 41,702 blocks of 512 tokens (from input_length ÷ ids), 30,634 "
        "of them different."
    )
    assert times == (
        "Times are in milliseconds, assumed: they are whole numbers (--time-unit); no hit depends on their "
        "unit."
    )
    assert sticky.startswith("Sticky routing goes by the block behind the first 512 tokens")
    assert blank == ""
    assert header.split()[:4] == ["replicas", "capacity", "routing", "hits"]
    cells = [line.split() for line in table[: table.index("")]]
    # 1,024,000 tokens are 2,000 blocks: the same condition twice.
    assert [row[-1 - len(row) :][: 4 if row[0] == "*" else 3] for row in cells] == [
        ["*", "4", "1,024,000", "sticky"],
        ["4", "1,024,000", "random"],
        ["4", "endless", "sticky"],
        ["4", "endless", "random"],
        ["1", "1,024,000", "sticky"],
        ["1", "1,024,000", "random"],
        ["1", "endless", "sticky"],
        ["1", "endless", "random"],
    ]
    assert [row[-1] for row in cells[1:]] == ["yes"] * 7
    assert cells[-1][3:5] == ["26.54", "26.54"]


@pytest.mark.parametrize("file", [SLICE, CAPTURE])
def test_the_answer_fits_the_terminal(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = answered(file, "--capacity", "none")
    monkeypatch.setattr("pipeline.cli.commands.whatif.width", lambda: 80)
    narrow = answered(file, "--capacity", "none")
    assert max(map(len, narrow.splitlines())) <= 80 < max(map(len, whole.splitlines()))
    assert narrow.split()[-20:] == whole.split()[-20:]


def test_ids_that_are_no_prefixes_are_pointed_out(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    request = '{{"timestamp": 0, "input_length": {}, "hash_ids": {}}}\n'
    path.write_text(request.format(1024, [1, 2]) + request.format(500, [2]))
    assert "do not stand for whole prefixes" in answered(path, "--block-size", 512).splitlines()[2]
    path.write_text(request.format(1024, [1, 2]) + request.format(1030, [1, 2, 3]))
    assert answered(path, "--block-size", 512).splitlines()[2] == ""


def test_a_recording_gives_bounds_of_what_is_saved() -> None:
    actual, some, endless = rows(CAPTURE, "--capacity", "+10000t,none")
    assert actual["actual"]
    assert actual["filled_tokens"] == sum(actual["fills"].values())
    (pool,) = json.loads(
        CliRunner().invoke(kvlens, ["analyze", str(CAPTURE), "--json"], catch_exceptions=False).stdout
    )
    assert pool["trust"] == "complete"
    # Fills are first copies: no more than what was stored, no less than what was distinct.
    assert actual["filled_tokens"] <= pool["stored"] * 16
    evicted = actual["fills"]["evicted"]
    assert 0 < some["saved_at_least"] < endless["saved_at_least"] <= evicted
    assert some["saved_at_most"] == endless["saved_at_most"] == evicted
    text = answered(CAPTURE)
    assert "a recording does not tell how often a block was found, and gives no hit rate" in text
    assert f"{actual['filled_tokens']:,} tokens" in text


def test_of_several_caches_it_says_what_one_for_all_would_save(tmp_path: Path) -> None:
    path = tmp_path / "two.kvrec"
    sources = tuple(RecordedSource(f"vllm-{n}", model="m") for n in range(2))
    with Recording(CAPTURE) as capture, RecordingWriter(path, sources) as writer:
        for frame in capture.frames():
            for source, delay in enumerate((0.0, 1.0)):
                writer.write(Frame(source, frame.received_at + delay, frame.parts))
    actual, more, shared = rows(path, "--capacity", "+10000t")
    (single,) = rows(CAPTURE)[:1]
    assert actual["replicas"] == more["replicas"] == 2
    # The same engine twice: what the one computed first, the other need not have computed.
    assert actual["filled_tokens"] == 2 * single["filled_tokens"]
    assert actual["fills"]["cold"] == single["fills"]["cold"]
    assert actual["fills"]["peer"] == single["fills"]["cold"]
    assert 0 < more["saved_at_least"] < more["saved_at_most"] < shared["saved_at_most"]
    assert (shared["replicas"], shared["extra_tokens"]) == (1, None)
    kept = actual["fills"]["cold"] + actual["fills"]["generated"]
    assert shared["saved_at_most"] == actual["filled_tokens"] - kept


def pair(path: Path, prefilling: int) -> Path:
    """Write the recorded pair, its prefill engine under so many names, its decode engine under one."""
    engines = {f"prefill-{n}": ("prefill", "small.prefill-0") for n in range(prefilling)}
    engines["decode"] = ("decode", "small.decode-0")
    frames = [
        Frame(source, published_at(parts[2]) or 0.0, tuple(parts))
        for source, (_, name) in enumerate(engines.values())
        for parts in captured_frames(name)
    ]
    sources = tuple(RecordedSource(name, model="m", role=role) for name, (role, _) in engines.items())
    with RecordingWriter(path, sources) as writer:
        for frame in sorted(frames, key=lambda frame: frame.received_at):
            writer.write(frame)
    return path


def test_where_one_replica_computes_prompts_no_routing_is_asked_for(tmp_path: Path) -> None:
    path = pair(tmp_path / "pair.kvrec", 1)
    actual, more = rows(path)
    assert (actual["replicas"], actual["computing"], more["replicas"]) == (2, 1, 2)
    # As test_transfers.py has them of the whole pipeline.
    assert actual["fills"]["transferred"] == 23_312
    assert "1 of the caches only decode" in answered(path)
    prefill = actual["filled_tokens"] - 23_312 - actual["fills"]["generated"]
    assert more["share_at_most"] == more["saved_at_most"] / prefill


def test_one_cache_for_all_is_one_for_those_that_compute_prompts(tmp_path: Path) -> None:
    path = pair(tmp_path / "fleet.kvrec", 2)
    actual, _, shared = rows(path)
    assert (actual["replicas"], actual["computing"], shared["replicas"]) == (3, 2, 1)
    truth = captured_truth("small.prefill-0")
    stored = [dict(zip(truth["stored_columns"], row, strict=True)) for row in truth["stored"]]
    filled = [row["hash"] for row in stored if not row["held_here_already"]]
    # Either computes what the other does; a block that the decode engine has is no less new to both.
    assert shared["saved_at_most"] == 16 * (2 * len(filled) - len({*filled}))
    assert shared["saved_at_most"] < sum(
        tokens
        for cause, tokens in actual["fills"].items()
        if cause not in ("cold", "transferred", "generated")
    )


def part(path: Path, frames: Callable[[list[Frame]], list[Frame]]) -> Path:
    """Write a part of the capture, beside a second cache that is recorded whole."""
    sources = (RecordedSource("cut", model="m"), RecordedSource("whole", model="m"))
    with Recording(CAPTURE) as capture, RecordingWriter(path, sources) as writer:
        whole = list(capture.frames())
        for frame in frames(whole):
            writer.write(frame)
        for frame in whole:
            writer.write(Frame(1, frame.received_at, frame.parts))
    return path


@pytest.mark.parametrize(
    ("frames", "incomplete"),
    [
        pytest.param(lambda whole: whole, 0, id="whole"),
        pytest.param(lambda whole: whole[1:], 1, id="begun-before", marks=pytest.mark.night),
        pytest.param(lambda whole: whole[-500:], 1, id="begun-long-before", marks=pytest.mark.night),
        pytest.param(lambda whole: whole[:100] + whole[101:], 1, id="with-a-gap"),
    ],
)
def test_it_tells_how_many_caches_are_not_recorded_from_their_beginning(
    frames: Callable[[list[Frame]], list[Frame]], incomplete: int, tmp_path: Path
) -> None:
    """Also of a cache that is cleared later: what it filled until then may have been there before."""
    path = part(tmp_path / "part.kvrec", frames)
    remark = f"    {incomplete} of the caches began before the recording or have gaps in it."
    lines = answered(path).splitlines()
    assert [line for line in lines if "began before" in line] == [remark] * bool(incomplete)
    assert ("unknown" in "\n".join(lines[: lines.index("")])) == bool(incomplete)
    assert json.loads(answered(path, "--json"))["incomplete"] == incomplete


def refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str]:
    """Return the exit code and the one line."""
    handler = signal.getsignal(signal.SIGTERM)
    try:
        with pytest.raises(SystemExit) as ended:
            failures.run(kvlens, ["whatif", *map(str, arguments)])
    finally:
        signal.signal(signal.SIGTERM, handler)
    (line,) = capsys.readouterr().err.splitlines()
    return int(str(ended.value.code)), line


@pytest.mark.parametrize(
    ("file", "options", "problem"),
    [
        (
            SLICE,
            ["--capacity", "10"],
            "a capacity of 10 blocks of 512 tokens does not hold the trace's longest",
        ),
        (SLICE, ["--capacity", "+10t"], "+ is for recordings"),
        (
            CAPTURE,
            ["--routing", "sticky"],
            "a recording cannot tell what other routing would do: hits leave no events",
        ),
        (CAPTURE, ["--capacity", "4000"], "a recording does not say how large the caches were"),
        (CAPTURE, ["--replicas", "3"], "cannot tell what 3 replicas would do: hits leave no events"),
        (CAPTURE, ["--block-size", "16"], "a recording says itself how large its blocks are"),
        (Path(__file__), [], f"{__file__}: neither a request trace nor a recording"),
        (
            ROOT / "pyproject.toml",
            ["--replicas", "2"],
            f"{ROOT}/pyproject.toml: neither a request trace nor a",
        ),
        (
            TRACES / "azure.csv",
            ["--routing", "sticky"],
            f"{TRACES}/azure.csv: Azure's LLM inference trace has no",
        ),
        (TESTS / "missing", [], f"{TESTS}/missing: No such file or directory"),
    ],
    # The lines themselves name where this checkout is.
    ids=lambda value: value.name if isinstance(value, Path) else "",
)
def test_what_cannot_be_known_is_refused_in_one_line(
    file: Path, options: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, line = refused(capsys, file, *options)
    assert (code, line[: len(problem) + 8]) == (1, f"kvlens: {problem}")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            '{"timestamp": 0}\n',
            ", line 1: no form of request trace that whatif reads (fields: timestamp); it reads",
        ),
        ('[kafka]\nsecurity = "TLS"\n', ": neither a request trace nor a recording: traces are JSON"),
        ("PAR1", ": neither a request trace nor a recording (a Parquet file): "),
        (
            '{"timestamp": 0, "input_length": 1, "hash_ids": []}\n',
            ": no request of the trace looks up a block",
        ),
        ("", ": neither a request trace nor a recording (empty): "),
    ],
)
def test_odd_files_are_told_in_one_line(
    text: str, problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "odd"
    path.write_text(text)
    code, line = refused(capsys, path, "--replicas", "2")
    assert (code, line[: len(f"kvlens: {path}{problem}")]) == (1, f"kvlens: {path}{problem}")


@pytest.mark.parametrize(
    ("option", "value"),
    [("--replicas", "0"), ("--replicas", "x"), ("--capacity", "3M"), ("--routing", "best")],
)
def test_values_are_checked(option: str, value: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, line = refused(capsys, SLICE, option, value)
    assert code == 2
    assert f"Invalid value for '{option}': '{value}' is" in line


def test_capacities_in_tokens_are_those_of_the_trace() -> None:
    """Rates as an obvious cache of as many tokens finds them; before, they were 9 and 36 points wrong."""
    path = TRACES / "bailian_16_seconds.jsonl"
    requests = sorted(map(json.loads, path.read_text().splitlines()), key=lambda line: line["timestamp"])
    for tokens in (2_000, 5_000, 64_000):
        caches = [SlowLru(16, tokens) for _ in range(2)]
        for number, request in enumerate(requests):
            caches[number % 2].serve(request["hash_ids"], request["input_length"])
        (row,) = rows(path, "--replicas", 2, "--capacity", f"{tokens}t")
        assert (row["block_hit_rate"], row["token_hit_rate"]) == pytest.approx(
            sum(caches[1:], caches[0]).rates
        )
    assert (round(row["block_hit_rate"], 3), round(row["token_hit_rate"], 3)) == (0.602, 0.607)
    trace = json.loads(answered(path, "--json"))["trace"]
    assert round(trace["seconds"]) == 322
    assert (trace["block_size"], trace["block_size_from"]) == (16, "input_length ÷ ids")
    assert "look up 3,692 blocks of 16 tokens (from input_length ÷ ids)" in answered(path)
