"""Files as people have them: marks, line ends, packing, one array; and lines that cannot be used."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zstandard

from pipeline.simulator.traffic.trace import TraceReplica, hit_rates
from pipeline.traces.reading import read_trace
from pipeline.traces.trace import Trace, TraceError, TraceRequest
from tests.support.checkout import ROOT, TRACES

SLICE = TRACES / "mooncake_conversation_1500.jsonl.gz"


Read = Callable[..., Trace]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Read a trace from a file of this content."""

    def read(content: str | bytes, *arguments: Any) -> Trace:
        path = tmp_path / "trace"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return read_trace(path, *arguments)

    return read


def line(timestamp: object = 5, length: object = 700, ids: object = (1, 2)) -> str:
    fields = {"timestamp": timestamp, "input_length": length, "output_length": 3, "hash_ids": ids}
    return json.dumps(fields) + "\n"


@pytest.mark.parametrize(
    ("bad", "problem"),
    [
        ("nonsense\n", "malformed"),
        ("[]\n", "not an object"),
        ('{"timestamp": 5}\n', "no input_length"),
        (line(timestamp="now"), "timestamp"),
        (line(timestamp=float("nan")), "malformed"),
        (line(timestamp=1e300), "timestamp"),
        (line(timestamp=-1), "timestamp"),
        (line(timestamp=10**400), "timestamp"),
        ('{"timestamp": ' + "[" * 100_000 + "]" * 100_000 + "}\n", "maximum recursion depth"),
        (line(length=-1), "input_length"),
        (line(length=True), "input_length"),
        (line(length=700.5), "input_length"),
        (line(length=2**32), "input_length"),
        (line(ids=None), "hash_ids"),
        (line(ids="12"), "hash_ids"),
        (line(ids=[1.5]), r"hash_ids\[0\]"),
        (line(ids=[1, True]), r"hash_ids\[1\]"),
        (line(ids=[1, None]), r"hash_ids\[1\]"),
        (line(ids=["two words"]), r"hash_ids\[0\] is a text, no id"),
    ],
)
def test_a_bad_line_is_named(bad: str, problem: str, tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text(line() + bad)
    with pytest.raises(
        TraceError, match=rf"trace\.jsonl, line 2: not a trace request: .*{problem}"
    ) as raised:
        read_trace(path, 512)
    assert "\n" not in str(raised.value)


def test_times_that_some_requests_lack_are_named(read: Read) -> None:
    with pytest.raises(TraceError, match="line 2 has no time, as others have"):
        read(line() + '{"input_length": 700, "hash_ids": [1, 2]}\n', 512)
    with pytest.raises(TraceError, match="some times are dates and some are numbers"):
        read(line(timestamp="2026-01-01") + line(), 512)


@pytest.mark.parametrize(
    "packed", [SLICE.read_bytes(), zstandard.compress(gzip.decompress(SLICE.read_bytes()))]
)
def test_a_trace_cut_short_is_named(packed: bytes, tmp_path: Path) -> None:
    path = tmp_path / "trace.packed"
    path.write_bytes(packed[: len(packed) // 2])
    with pytest.raises(TraceError, match=r"trace\.packed, line \d+: the file is damaged"):
        read_trace(path)


def test_zstd_of_several_frames_is_read_whole(read: Read) -> None:
    text = gzip.decompress(SLICE.read_bytes())
    half = text.index(b"\n", len(text) // 2) + 1
    assert read(zstandard.compress(text[:half]) + zstandard.compress(text[half:])) == read_trace(SLICE)


def test_odd_requests_are_played(read: Read) -> None:
    """No order, equal times, ids of any size, one block or none, blank lines; zipped under any name."""
    huge = 1 << 200
    lines = [line(9, 515, [huge, -3]), line(5), "\n", line(5, 3, []), line(6, 1, [1]), line(0, 512, [huge])]
    trace = read(gzip.compress("".join(lines).encode()), 512)
    assert trace.requests == [
        TraceRequest(0.0, 512, (huge,), f"({huge},)"),
        TraceRequest(0.005, 700, (1, 2), "(2,)"),
        TraceRequest(0.005, 3, (), "()"),
        TraceRequest(0.006, 1, (1,), "(1,)"),
        TraceRequest(0.009, 515, (huge, -3), "(-3,)"),
    ]
    replica = TraceReplica(512, 2)
    assert [len(replica.serve(request)) for request in trace.requests] == [1, 2, 0, 0, 2]
    assert hit_rates([replica.counters]) == (1 / 6, 1 / 1731)


WHOLE = line(0, 1862, [0, 1, 2, 3]), line(4434, 1754, [0, 1, 4, 5]), line(6759, 1814, [0, 1, 6, 7])
ARRAY = "[" + ",".join(each.strip() for each in WHOLE) + "]"


@pytest.mark.parametrize(
    "content",
    [
        pytest.param("".join(WHOLE).encode(), id="plain"),
        pytest.param(b"\xef\xbb\xbf" + "".join(WHOLE).encode(), id="byte-order-mark"),
        pytest.param("".join(WHOLE).encode("utf-16"), id="utf-16"),
        pytest.param(
            "\r\n".join(each.strip() for each in WHOLE).encode() + b"\r\n\r\n \r\n", id="crlf-and-blanks"
        ),
        pytest.param("".join(WHOLE).rstrip().encode(), id="no-last-line-end"),
        pytest.param(ARRAY.encode(), id="array"),
        pytest.param(
            b"\xef\xbb\xbf\n" + json.dumps(json.loads(ARRAY), indent=2).encode(), id="array-over-lines"
        ),
        pytest.param("".join(WHOLE).replace("1862", "1862.0").encode(), id="whole-floats"),
        pytest.param("".join(WHOLE).replace("1862", '"1862"').encode(), id="lengths-as-texts"),
        pytest.param("".join(WHOLE).replace("[0, 1,", '["0", "1",').encode(), id="ids-as-texts"),
        pytest.param("".join(WHOLE).replace("[0, 1,", "[0.0, 1.0,").encode(), id="ids-as-floats"),
        pytest.param(zstandard.compress("".join(WHOLE).encode()), id="zstd"),
        pytest.param(gzip.compress(ARRAY.encode()), id="gzip"),
    ],
)
def test_one_trace_in_many_files(content: bytes, read: Read) -> None:
    trace = read(content)
    assert [(each.seconds, each.input_length, each.hash_ids) for each in trace.requests] == [
        (0.0, 1862, (0, 1, 2, 3)),
        (4.434, 1754, (0, 1, 4, 5)),
        (6.759, 1814, (0, 1, 6, 7)),
    ]
    assert trace.block_size == 512


def test_hexadecimal_ids_are_texts(read: Read) -> None:
    first, second = read(line(0, 40, ["00ff", "0012", "12"]) + line(1, 40, ["00FF", "12", 12])).requests
    assert first.hash_ids == ("00ff", "0012", 12)
    assert second.hash_ids == ("00ff", 12, 12)


@pytest.mark.parametrize(
    ("times", "seconds", "said"),
    [
        ([0, 1500], 1.5, "in milliseconds, assumed: they are whole numbers (--time-unit)"),
        ([0, 1.5], 1.5, "in seconds, assumed: they have fractions (--time-unit)"),
        ([1764000000, 1764000030], 30, "in seconds since 1970 (by their size)"),
        ([1764000000000, 1764000030000], 30, "in milliseconds since 1970 (by their size)"),
        ([1764000000000000, 1764000030000000], 30, "in microseconds since 1970 (by their size)"),
        (["1764000000000000000", "1764000030000000000"], 30, "in nanoseconds since 1970 (by their size)"),
        (["2023-11-16 18:15:46.6805900", "2023-11-16T18:15:50.680590+00:00"], 4, "dates"),
        (["2023-11-16 18:15:46.68+00", "2023-11-16 20:15:50.68 +0200"], 4, "dates"),
        (["2023-11-16", "2023-11-16T05:00Z"], 18_000, "dates"),
    ],
)
def test_units_of_time(times: list[object], seconds: float, said: str, tmp_path: Path) -> None:
    path = tmp_path / "trace"
    path.write_text("".join(line(each) for each in times))
    trace = read_trace(path, 512)
    first, last = trace.requests
    assert last.seconds - first.seconds == pytest.approx(seconds, abs=1e-5)
    assert trace.times == said
    if said != "dates":
        assert read_trace(path, 512, "s").times == "in seconds (as given)"


@pytest.mark.parametrize(
    ("requests", "size", "said"),
    [
        ([(521, 33)], 16, "input_length ÷ ids"),
        ([(48, 1), (96, 2), (97, 3)], 48, "input_length ÷ ids"),
        ([(45, 1), (100, 2)], 64, "input_length ÷ ids, which allows 50 to 100"),
        ([(430, 6), (240, 3)], 80, "input_length ÷ ids, which allows 80 to 86"),
        ([(6758, 14), (7322, 15)], 512, "input_length ÷ ids, which allows 489 to 519"),
        ([(33, 2), (47, 2), (48, 3), (160, 10)], 16, "input_length ÷ ids"),
        ([(32, 3), (48, 4), (160, 11), (31, 2)], 16, "input_length ÷ ids"),
        ([(528 * 9 + 5, 10), (528 * 3, 3)], 528, "input_length ÷ ids"),
    ],
)
def test_block_sizes(requests: list[tuple[int, int]], size: int, said: str, read: Read) -> None:
    trace = read("".join(line(0, length, list(range(count))) for length, count in requests))
    assert (trace.block_size, trace.block_size_from) == (size, said)


@pytest.mark.parametrize(
    ("requests", "given", "problem"),
    [
        ([(1024, 2)], None, "its blocks may be of 512 to 1,024 tokens"),
        ([(100, 1)], None, "its blocks may be of 100 or more tokens"),
        ([(40, 2), (39, 2), (77, 4)], None, "its blocks may be of 20 to 25 tokens"),
        (
            [(7322, 15), (521, 33)],
            None,
            "line 2: 521 tokens in 33 blocks, and 7,322 tokens in 15 blocks in line 1",
        ),
        ([(7322, 15), (1, 5)], None, "line 2: 1 tokens in 5 blocks, and 7,322 tokens in 15 blocks in line 1"),
        ([(1, 5)], None, "line 1: 1 tokens in 5 blocks is not possible"),
        ([(0, 2)], None, "line 1: 0 tokens in 2 blocks is not possible"),
        ([(7322, 15), (20, 2)], 512, "line 2: 20 tokens in 2 blocks is not possible with blocks of 512"),
        ([(7322, 15), (2000, 2)], 512, "line 2: 2,000 tokens in 2 blocks is not possible"),
        ([(100, 1)], 1 << 32, "--block-size is 4294967296, no number of tokens"),
    ],
)
def test_block_sizes_that_are_not_known(
    requests: list[tuple[int, int]], given: int | None, problem: str, read: Read
) -> None:
    with pytest.raises(TraceError) as raised:
        read("".join(line(0, length, list(range(count))) for length, count in requests), given)
    assert problem in str(raised.value)


def test_sizes_that_lines_state_must_agree(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    stated = '{"timestamp": 0, "input_length": 100, "hash_ids": [1, 2], "block_size": %s}\n'
    path.write_text(stated % 64 + stated % 96)
    with pytest.raises(TraceError, match="line 2: blocks of 96 tokens, not 64 as the block size in line 1"):
        read_trace(path)
    with pytest.raises(TraceError, match="line 1: blocks of 64 tokens, not 96 as --block-size"):
        read_trace(path, 96)
    path.write_text(stated % 0)
    with pytest.raises(TraceError, match="line 1: not a trace request: block_size is 0"):
        read_trace(path)


def test_without_sessions_a_system_prompt_does_not_make_one(read: Read) -> None:
    """Blocks of 16 tokens: the second one is of the system prompt, the one behind 512 tokens is not."""
    trace = read("".join(line(n, 640, [*range(32), *range(100 * n, 100 * n + 8)]) for n in range(1, 9)))
    assert trace.block_size == 16
    assert len({request.session for request in trace.requests}) == 8
    assert trace.sessions_from.startswith("the block behind the first 512 tokens")


def test_all_of_the_recorded_traces_lines_fit_their_block_size() -> None:
    trace = read_trace(ROOT / "tests/data/traces/bailian_16_seconds.jsonl")
    for request in trace.requests:
        assert len(request.hash_ids) == request.input_length // 16 + 1


@pytest.mark.parametrize("around", [False, True])
def test_units_of_a_header(around: bool, tmp_path: Path) -> None:
    """Before the requests, or around them."""
    path = tmp_path / "trace"
    header = {"block_size": 48, "time_unit": "seconds", "model": "m"}
    requests = [json.loads(line(at, 96, [1, 2])) for at in (0, 3)]
    if around:
        path.write_text(json.dumps(header | {"requests": requests}, indent=1))
    else:
        path.write_text("".join(json.dumps(each) + "\n" for each in (header, *requests)))
    trace = read_trace(path)
    assert (trace.block_size, trace.times) == (48, "in seconds (as given)")
    assert [request.seconds for request in trace.requests] == [0.0, 3.0]
    with pytest.raises(TraceError, match="blocks of 48 tokens, not 512 as --block-size"):
        read_trace(path, 512)
    path.write_text(path.read_text().replace("seconds", "fortnights"))
    with pytest.raises(TraceError, match="its header: time_unit is none of s, ms, us, ns"):
        read_trace(path)


def test_a_name_around_the_requests_cannot_steer_the_terminal(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    path.write_text(json.dumps({"block_size": 16, "\x1b[2J": [json.loads(line(length="many"))]}))
    with pytest.raises(TraceError, match=", element 1: "):
        read_trace(path)
