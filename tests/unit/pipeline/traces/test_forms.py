"""Each published form of trace: read in its own units, or refused by name with what it lacks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pipeline.traces.conversations import flattened
from pipeline.traces.forms import FORMS
from pipeline.traces.reading import read_trace
from pipeline.traces.rows import Row
from pipeline.traces.trace import TraceError, TraceRequest
from tests.support.checkout import ROOT

DATA = ROOT / "tests" / "data" / "traces"


def written(path: Path, *objects: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(each) + "\n" for each in objects))
    return path


def test_mooncakes_fields_in_seconds(tmp_path: Path) -> None:
    trace = read_trace(DATA / "guidellm_seconds.jsonl")
    assert (trace.block_size, trace.block_size_from) == (16, "input_length ÷ ids, which allows 15 to 20")
    assert [request.seconds for request in trace.requests] == [0.0, 0.2, 0.4]
    assert trace.times == "in seconds, assumed: they have fractions (--time-unit)"
    with pytest.raises(TraceError, match="line 2: 20 tokens in 2 blocks is not possible with blocks of 512"):
        read_trace(DATA / "guidellm_seconds.jsonl", 512)
    stated = {"timestamp": 0.2, "input_length": 20, "hash_ids": [0, 1], "hash_id_block_size": 512}
    with pytest.raises(TraceError, match="line 1: 20 tokens in 2 blocks is not possible with blocks of 512"):
        read_trace(written(tmp_path / "stated.jsonl", stated))


def test_bailians_chats_are_chains_of_parents(tmp_path: Path) -> None:
    def turn(chat: int, parent: int, at: float) -> dict[str, Any]:
        return {"chat_id": chat, "parent_chat_id": parent, "timestamp": at, "input_length": 33, "turn": 1,
                "hash_ids": [0, 1, 2]}  # fmt: skip

    trace = read_trace(
        written(tmp_path / "chats", turn(7, -1, 1.0), turn(9, 8, 3.0), turn(8, 7, 2.0), turn(5, 4, 4.0))
    )
    assert [request.session for request in trace.requests] == ["7", "7", "7", "5"]
    assert (trace.block_size, trace.times) == (16, "in seconds (as Qwen-Bailian's trace has)")
    assert trace.sessions_from == "chat ids"
    assert "allows 12 to 16" not in trace.block_size_from  # 33 tokens in three: 11 to 16


def test_times_since_1970_are_not_taken_for_the_forms_own(tmp_path: Path) -> None:
    """As exporters write them into Qwen-Bailian's form, whose times are seconds from the beginning."""
    rows = [
        {"chat_id": n, "parent_chat_id": -1, "timestamp": 1_764_000_000_000 + 500 * n, "input_length": 16,
         "hash_ids": [n]}
        for n in range(3)
    ]  # fmt: skip
    trace = read_trace(written(tmp_path / "epoch", *rows))
    assert trace.requests[-1].seconds - trace.requests[0].seconds == 1.0


def test_chats_in_a_circle_come_to_an_end(tmp_path: Path) -> None:
    def turn(chat: int, parent: int) -> dict[str, Any]:
        return {
            "chat_id": chat,
            "parent_chat_id": parent,
            "timestamp": 1,
            "input_length": 16,
            "hash_ids": [chat],
        }

    assert len(read_trace(written(tmp_path / "circle", turn(1, 2), turn(2, 1), turn(3, 3))).requests) == 3


def test_sessions_with_delays(tmp_path: Path) -> None:
    path = written(
        tmp_path / "sessions.jsonl",
        {
            "session_id": "a",
            "timestamp": 1000,
            "input_length": 1536,
            "hash_ids": [1, 2, 3],
            "block_size": 512,
        },
        {"session_id": "a", "delay": 500, "input_length": 2048, "hash_ids": [1, 2, 3, 4], "block_size": 512},
        {"session_id": "b", "timestamp": 1200, "input_length": 512, "hash_ids": [1], "block_size": 512},
        {"session_id": "a", "delay_ms": 250.0, "input_length": 2049, "hash_ids": [1, 2, 3, 4, 5]},
    )
    trace = read_trace(path)
    assert [(each.session, each.seconds) for each in trace.requests] == [
        ("a", 1.0),
        ("b", 1.2),
        ("a", 1.5),
        ("a", 1.75),
    ]
    assert trace.block_size_from == "the block size in line 1"
    assert [remark for remark in trace.remarks if "delay after the turn before" in remark]
    assert not [remark for remark in trace.remarks if "mooncake-delta" in remark]


def test_sessions_that_hold_only_what_is_new_are_pointed_out(tmp_path: Path) -> None:
    path = written(
        tmp_path / "delta.jsonl",
        {"session_id": "a", "timestamp": 0, "input_length": 1536, "hash_ids": [1, 2, 3]},
        {"session_id": "a", "delay": 5, "input_length": 515, "hash_ids": [4, 5]},
    )
    assert any("mooncake-delta" in remark for remark in read_trace(path).remarks)


def test_wekas_conversations_are_flattened_and_their_ids_kept_apart(tmp_path: Path) -> None:
    def conversation(name: str, **more: Any) -> dict[str, Any]:
        call = {"type": "n", "model": "m", "out": 20}
        return {
            "id": name,
            "models": ["m"],
            "block_size": 64,
            "hash_id_scope": "local",
            "requests": [
                {"t": 0.0, "in": 418, "hash_ids": [0, 1, 2, 3, 4, 5, 6], **call},
                {
                    "t": 10.0,
                    "type": "subagent",
                    "agent_id": "agent_001",
                    "requests": [{"t": 0.5, "in": 70, "hash_ids": [0, 7], **call}],
                },
                {"t": 20.0, "in": 450, "hash_ids": [0, 1, 2, 3, 4, 5, 6, 8], **call},
            ],
        } | more  # fmt: skip

    trace = read_trace(written(tmp_path / "weka.jsonl", conversation("x"), conversation("y")))
    assert (trace.block_size, len(trace.requests)) == (64, 6)
    ids = [{*request.hash_ids} for request in trace.requests if request.session == "x"]
    others = [{*request.hash_ids} for request in trace.requests if request.session == "y"]
    assert ids[1] & ids[0] == {"x/0"}
    assert not set.union(*ids) & set.union(*others)
    assert sorted(request.seconds for request in trace.requests) == [0.0, 0.0, 10.5, 10.5, 20.0, 20.0]
    shared = read_trace(
        written(tmp_path / "g", *(conversation(name, hash_id_scope="global") for name in "xy"))
    )
    assert {request.hash_ids for request in shared.requests[:2]} == {(0, 1, 2, 3, 4, 5, 6)}
    # One conversation, written over several lines, as its publisher's files are.
    (tmp_path / "one.json").write_text(json.dumps(conversation("x"), indent=1))
    assert len(read_trace(tmp_path / "one.json").requests) == 3
    # A subagent without requests, and one whose times are texts.
    requests = conversation("x")["requests"]
    requests[1]["requests"][0]["t"] = "0.5"
    odd = written(tmp_path / "odd", conversation("x", requests=[*requests, {"requests": 5}]))
    assert [request.seconds for request in read_trace(odd).requests] == [0.0, 10.5, 20.0]


def test_subagents_may_be_nested_deeper_than_python_calls_functions() -> None:
    fields: dict[str, Any] = {"t": 1.0}
    for _ in range(5000):
        fields = {"t": 1.0, "requests": [fields]}
    form = next(each for each in FORMS if each.within)
    assert [row.fields["t"] for row in flattened(Row("line 1", fields), form)] == [1.0]


def test_dynamos_request_trace(tmp_path: Path) -> None:
    def ended(number: int, session: str) -> dict[str, Any]:
        return {
            "schema": "dynamo.request.trace.v1",
            "event_type": "request_end",
            "event_time_unix_ms": 1_764_000_000_000 + 90,
            "agent_context": {"session_id": session},
            "request": {
                "request_id": f"r{number}",
                "request_received_ms": 1_764_000_000_000 + 1_500 * number,
                "replay": {
                    "trace_block_size": 64,
                    "input_length": 65,
                    "input_sequence_hashes": [(1 << 64) - 1, number],
                },
            },
        }

    tool = {"schema": "dynamo.request.trace.v1", "event_type": "tool_end", "tool": {"name": "search"}}
    trace = read_trace(
        written(tmp_path / "dynamo", {"timestamp": 1, "event": tool}, ended(1, "a"), tool, ended(2, "b"))
    )
    assert [(each.hash_ids, each.session) for each in trace.requests] == [
        (((1 << 64) - 1, 1), "a"),
        (((1 << 64) - 1, 2), "b"),
    ]
    assert trace.requests[1].seconds - trace.requests[0].seconds == 1.5
    assert (trace.block_size, trace.times) == (64, "in milliseconds since 1970 (by their size)")
    assert trace.remarks[0].startswith("2 objects of the file are no requests")


def test_litellms_spend_logs(tmp_path: Path) -> None:
    def spent(at: str, ids: Any) -> dict[str, Any]:
        return {"startTime": at, "prompt_tokens": 40, "completion_tokens": 5, "session_id": "s",
                "metadata": ids}  # fmt: skip

    plain = {"prefix_block_hashes": ["00ff00ff00ff00ff", "1234567890123456", "0012345678901234"]}
    path = written(
        tmp_path / "spend",
        spent("2026-11-16T10:00:00.25Z", plain),
        spent("2026-11-16 10:00:01.2500000", json.dumps(plain)),
    )
    trace = read_trace(path)
    assert {request.hash_ids for request in trace.requests} == {
        ("00ff00ff00ff00ff", 1234567890123456, "0012345678901234")
    }
    assert trace.requests[1].seconds - trace.requests[0].seconds == 1.0
    assert (trace.block_size, trace.times) == (16, "dates")
    assert trace.block_size_from == "input_length ÷ ids, which allows 14 to 20"
    stated = {"prefix_block_hashes": {"block_size": 20, "hashes": ["a0", "b0"]}}
    assert read_trace(written(tmp_path / "stated", spent("2026-11-16T10:00:00Z", stated))).block_size == 20


def test_a_trace_without_times_keeps_its_order(tmp_path: Path) -> None:
    path = written(
        tmp_path / "kvcache.jsonl",
        *({"block_size": 64, "hash_ids": [n, n + 1], "input_length": 128} for n in (3, 1, 2)),
    )
    trace = read_trace(path)
    assert [request.hash_ids[0] for request in trace.requests] == [3, 1, 2]
    assert trace.times is None
    assert trace.remarks == ("It has no times: requests are played in the order of the file.",)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("TIMESTAMP,NumImages,ContextTokens,GeneratedTokens\n2024-10-15,1,10,2\n", "Azure's LLM inference"),
        ("Timestamp,Model,Request tokens,Response tokens,Total tokens\n5,ChatGPT,472,18,490\n",
         "BurstGPT's trace has no block ids: hits cannot be told"),
        ("arrived_at,num_prefill_tokens,num_decode_tokens\n0,100,10\n", "has no block ids"),
        ('{"timestamp": 5, "input_length": 300, "output_length": 40}\n', "has no block ids: hits"),
        ('{"conversations": [{"from": "human", "value": "secret"}]}\n', "prompts in place of block ids"),
        ('[{"messages": [{"role": "user", "content": "secret"}]}]', "prompts in place of block ids"),
        ('{"text_input": "secret", "output_length": 4}\n', "prompts in place of block ids"),
        ('{"session_id": "s", "turns": [{"text": "secret"}]}\n', "prompts in place of block ids"),
        ('{"token_ids": [1, 2, 3]}\n', "token ids, which are the prompts"),
        ('{"session_id": "s", "prefix_tokens": 5, "newly_append_tokens": 6}\n', "TraceLab's trace tells"),
        ('{"resourceSpans": []}\n', "OpenTelemetry"),
        ('{"color": "blue"}\n', "line 1: no form of request trace that whatif reads (fields: color)"),
    ],
)  # fmt: skip
def test_what_lacks_block_ids_is_refused_by_name(text: str, problem: str, tmp_path: Path) -> None:
    path = tmp_path / "lacking"
    path.write_text(text)
    with pytest.raises(TraceError) as raised:
        read_trace(path)
    assert problem in str(raised.value)
    assert "secret" not in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("length", ["9" * 5000, "1" * 21])
def test_a_length_that_is_no_number_of_tokens_is_refused(length: str, tmp_path: Path) -> None:
    row = {"timestamp": 0, "input_length": length, "output_length": 5, "hash_ids": ["9" * 5000]}
    with pytest.raises(TraceError, match="no number of tokens"):
        read_trace(written(tmp_path / "long.jsonl", row))


def test_ids_in_csv(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(
        "timestamp,input_length,output_length,hash_ids\r\n"
        '0,40.0,5,"[1, 2, 3]"\r\n1000,33,5,1 2 4\r\n\r\n2500,9,5,7\r\n'
    )
    trace = read_trace(path)
    assert trace.requests == [
        TraceRequest(0.0, 40, (1, 2, 3), "(3,)"),
        TraceRequest(1.0, 33, (1, 2, 4), "(4,)"),
        TraceRequest(2.5, 9, (7,), "(7,)"),
    ]
