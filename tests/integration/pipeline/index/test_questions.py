"""What is asked over HTTP, well and badly: every answer is bounded, every refusal says why and is counted."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator
from typing import Any, get_args

import pytest

from connectors.process import listening
from pipeline.index import server as serving
from pipeline.residency import limits
from schemas.events import Removed, Stored
from schemas.reasons import QuestionRefusal
from tests.support.inputs.source_walks import pack
from tests.support.served_index import TYPED, Served

CHAIN = [2**64 - 3, 2**63 + 1, 17, 18]
TOKEN = "a-token-of-many-characters"
LARGE = json.dumps({"model_name": "m", "prompts": [CHAIN] * 150}).encode()


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    one = Served()
    one.publish("a", Stored(pack(CHAIN), 16, 64))
    one.publish("b", Stored(pack(CHAIN[:3]), 16, 48), Stored(pack(CHAIN[3:]), 0, medium="cpu"))
    one.publish("b", Stored(pack(CHAIN[:1]), 16, 16), Stored(pack(CHAIN[1:2]), 16, medium="fs"), rank=1)
    one.catch_up()
    await one.server.start()
    yield one
    await one.server.stop()


@pytest.fixture
async def many() -> AsyncIterator[Served]:
    """An index that has far more to say of `LARGE` than sockets take."""
    one = Served()
    for number in range(300):
        one.publish(f"replica-{number:03d}", Stored(pack(CHAIN), 16, 64))
    one.catch_up()
    await one.server.start()
    yield one
    await one.server.stop()


async def asked_by_hand(one: Served) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Ask `LARGE` over a connection that takes little of the answer."""
    narrow = socket.socket()
    narrow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    narrow.connect(("127.0.0.1", one.server.port))
    reader, writer = await asyncio.open_connection(sock=narrow, limit=1)
    writer.write(b"POST /query_by_hash HTTP/1.1\r\n" + TYPED + b"Content-Length: %d\r\n\r\n" % len(LARGE))
    writer.write(LARGE)
    return reader, writer


async def test_tiers_and_ranks(served: Served) -> None:
    status, answer = await served.ask({"model_name": "m", "block_hashes": CHAIN})
    assert status == 200
    assert answer["scores"] == {"a": {"0": 64}, "b": {"0": 48, "1": 16}}
    a, b = answer["instances"]["a"], answer["instances"]["b"]
    assert (a["longest_matched"], a["gpu"], a["cpu"], a["disk"], a["dp"]) == (64, 64, 64, 64, {"0": 64})
    assert (b["longest_matched"], b["gpu"], b["cpu"], b["disk"]) == (64, 48, 64, 64)
    assert b["dp"] == {"0": 48, "1": 16}
    rank = b["ranks"]["1"]
    assert (rank["gpu"], rank["cpu"], rank["disk"]) == (16, 16, 32)
    assert (rank["matched_tokens"], rank["matched_blocks"], rank["upper_bound"]) == (32, 2, True)
    assert (rank["trust"], b["ranks"]["0"]["trust"]) == ("partial", "complete")  # files outlive engines
    assert rank["event_age_seconds"] > 1e9
    assert not b["ranks"]["0"]["upper_bound"]
    assert answer["index"]["stale"] is False
    assert 0 <= answer["index"]["age_seconds"] < 60


@pytest.mark.parametrize(
    "form",
    [
        lambda one: one,
        lambda one: one - 2**64 if one >= 2**63 else one,
        lambda one: f"{one:016x}",
        lambda one: f"0x{one:016X}",
        lambda one: f"{'ab' * 8}{one:016x}",
        lambda one: f"{'ab' * 24}{one:016x}",
        str,
        lambda one: str(one - 2**64 if one >= 2**63 else one),
    ],
    ids=["unsigned", "signed", "hex", "0x", "16 bytes", "32 bytes", "decimal text", "signed text"],
)
async def test_hashes_in_any_form(served: Served, form: Any) -> None:
    for name in ("block_hashes", "seq_hashes"):
        _, answer = await served.ask({"model": "m", name: [form(one) for one in CHAIN]})
        assert answer["scores"] == {"a": {"0": 64}, "b": {"0": 48, "1": 16}}


async def test_prompts_instances_limits_and_domains(served: Served) -> None:
    served.publish("c", Stored(pack(CHAIN[:2]), 16, 32), domain="m/y/other")
    prompts = [CHAIN, [], [5], CHAIN[1:]]
    _, answer = await served.ask({"model_name": "m", "prompts": prompts})
    assert [{*each["instances"]} for each in answer["answers"]] == [{"a", "b"}, set(), set(), {"a", "b"}]
    asked = {"model_name": "m", "block_hashes": CHAIN}
    _, answer = await served.ask({**asked, "instance_id": "b"})
    assert {*answer["instances"]} == {"b"}
    _, answer = await served.ask({**asked, "limit": 1})
    assert {*answer["instances"]} == {"a"}
    _, answer = await served.ask({"model_name": "m", "prompts": prompts, "limit": 1})
    assert [{*each["instances"]} for each in answer["answers"]] == [{"a"}, set(), set(), {"a"}]
    _, answer = await served.ask({**asked, "tenant_id": "other"})
    assert answer["scores"] == {"c": {"0": 32}}
    _, answer = await served.ask({**asked, "tenant_id": "other", "hash_domain": "m/y/other"})
    assert answer["scores"] == {"c": {"0": 32}}


async def test_more_prompts_than_are_looked_up_in_one_go(served: Served) -> None:
    prompts = [CHAIN[: number % 5] for number in range(100)]
    _, answer = await served.ask({"model_name": "m", "prompts": prompts})
    longest = [each["instances"].get("a", {"longest_matched": 0}) for each in answer["answers"]]
    assert [one["longest_matched"] for one in longest] == [16 * (number % 5) for number in range(100)]


async def test_an_adapter_is_asked_for_by_name(served: Served) -> None:
    served.publish("tuned", Stored(pack([70, 71]), 16, 32, lora="sql"))
    served.publish("plain", Stored(pack([70, 71]), 16, 32))
    _, answer = await served.ask({"model_name": "m", "block_hashes": [70, 71], "lora_name": "sql"})
    assert {*answer["instances"]} == {"tuned"}
    status, answer = await served.ask({"model_name": "sql", "block_hashes": [70, 71]})
    assert (status, answer["error"]) == (404, "unknown_model")
    assert answer["detail"].endswith("; it is an adapter of 'm': ask for that, with lora_name")


async def test_adapters_beyond_those_that_keep_their_names_are_not_unknown(served: Served) -> None:
    most = limits.MOST_ADAPTERS
    stores = [Stored(pack([number]), 16, 16, lora=f"a{number}") for number in range(100, 101 + most)]
    served.publish("many", *stores)
    _, answer = await served.ask(
        {"model_name": "m", "block_hashes": [100 + most], "lora_name": f"a{100 + most}"}
    )
    assert {*answer["instances"]} == {"many"}


async def test_what_is_no_certain_answer_says_so(served: Served) -> None:
    """A part of a chunk on the CPU of vLLM; chunked local attention, whose lookback nobody announces."""
    chain = [90, 91, 92, 93]
    served.publish("chunk", Stored(pack(chain), 16, 64, medium="cpu"))
    served.publish(
        "chunked",
        Stored(pack(chain), 16, 64, spec_kind="full_attention"),
        Stored(pack(chain[2:]), 16, 32, group_idx=1, spec_kind="chunked_local_attention"),
    )
    _, answer = await served.ask({"model_name": "m", "block_hashes": [90, 91, 92, 5]})
    rank = answer["instances"]["chunk"]["ranks"]["0"]
    assert (rank["cpu"], rank["upper_bound"], rank["lower_bound"], rank["at_most_tokens"]) == (
        48,
        True,
        False,
        48,
    )
    rank = answer["instances"]["chunked"]["ranks"]["0"]
    assert (rank["gpu"], rank["upper_bound"], rank["lower_bound"], rank["at_most_tokens"]) == (
        0,
        False,
        True,
        48,
    )


@pytest.mark.parametrize(("window", "kind", "gone", "usable"), [
    (33, "sliding_window", [0, 1], 4),
    (33, "sliding_window", [0, 2], 0),
    (33, "sliding_window", [3], 3),
    (33, "sliding_window", [1, 3], 1),
    (None, "mamba", [0, 1, 2], 4),
    (None, "mamba", [3], 3),
    (None, "full_attention", [2], 2),
])  # fmt: skip
async def test_hybrid_groups_need_what_their_attention_looks_at(
    served: Served, window: int | None, kind: str, gone: list[int], usable: int
) -> None:
    chain = [90, 91, 92, 93]
    served.publish(
        "hybrid",
        Stored(pack(chain), 16, 64, spec_kind="full_attention"),
        Stored(pack(chain), 16, 64, group_idx=1, spec_kind=kind, sliding_window=window),
        Removed(pack([chain[at] for at in gone]), group_idx=1),
    )
    _, answer = await served.ask({"model_name": "m", "block_hashes": chain})
    found = answer["scores"].get("hybrid", {}).get("0", 0)
    assert found == 16 * usable


BAD: list[tuple[str, int, Any]] = [
    ("malformed", 400, b'{"model_name": "m", "block_hashes": [1,'),
    ("malformed", 400, b"\xff\xfe"),
    ("malformed", 400, b'{"x": ' + b"[" * 100_000),
    ("bad_question", 400, b"[]"),
    ("bad_question", 400, {"block_hashes": [1]}),
    ("bad_question", 400, {"model_name": "m"}),
    ("bad_question", 400, {"model_name": "m", "block_hashes": [1], "prompts": [[1]]}),
    ("bad_question", 400, {"model_name": "m", "block_hashes": [1.5]}),
    ("bad_question", 400, {"model_name": "m", "block_hashes": [True]}),
    ("bad_question", 400, {"model_name": "m", "block_hashes": [[1]]}),
    ("bad_question", 400, {"model_name": "m", "block_hashes": [1], "limit": -1}),
    ("bad_question", 400, {"model_name": "m", "block_hashes": [1], "block_size": -16}),
    ("bad_question", 400, {"model_name": "m" * 300, "block_hashes": [1]}),
    ("bad_hash", 400, {"model_name": "m", "block_hashes": [2**64]}),
    ("bad_hash", 400, {"model_name": "m", "block_hashes": [-(2**63) - 1]}),
    ("bad_hash", 400, {"model_name": "m", "block_hashes": [10**4000]}),
    ("bad_hash", 400, {"model_name": "m", "block_hashes": ["17", "0x0123456789abcdef"]}),
    ("bad_hash", 400, {"model_name": "m", "block_hashes": ["1234567890123456"]}),
    ("bad_hash", 400, {"model_name": "m", "block_hashes": ["18446744073709551616"]}),
    ("bad_hash", 400, {"model_name": "m", "block_hashes": ["0123456789abcdef0123"]}),
    ("bad_hash", 400, {"model_name": "m", "block_hashes": ["0123456789abcdeg"]}),
    ("bad_hash", 400, {"model_name": "m", "block_hashes": ["0123456789abcdef0"]}),
    ("unknown_model", 404, {"model_name": "nobody's", "block_hashes": [1]}),
    ("unknown_model", 404, {"model_name": "m", "block_hashes": [1], "tenant_id": "nobody"}),
    ("unknown_adapter", 404, {"model_name": "m", "block_hashes": [1], "lora_name": "nobody's"}),
    ("unknown_replica", 404, {"model_name": "m", "block_hashes": [1], "instance_id": "nobody"}),
    ("too_many_hashes", 413, {"model_name": "m", "block_hashes": [1] * 70_000}),
    ("too_many_hashes", 413, {"model_name": "m", "prompts": [[]] * 70_000}),
    ("too_many_hashes", 413, {"model_name": "m", "prompts": [[1], []] * 33_000}),
    ("too_many_hashes", 413, {"model_name": "m", "prompts": [["0123456789abcdef"], []] * 33_000}),
    ("too_large", 413, {"model_name": "m", "block_hashes": [*range(1_000_000)]}),
]


@pytest.mark.parametrize(("reason", "status", "body"), BAD, ids=range(len(BAD)))
async def test_bad_questions_are_refused_and_counted(
    served: Served, reason: str, status: int, body: Any
) -> None:
    before = served.refused(reason)
    got, answer = await served.ask(body)
    assert (got, answer["error"]) == (status, reason)
    assert 0 < len(answer["detail"]) < 500
    assert served.refused(reason) == before + 1
    assert (await served.ask({"model_name": "m", "block_hashes": CHAIN}))[0] == 200


async def test_an_index_that_is_behind_says_so() -> None:
    behind = Served()
    behind.publish("a", Stored(pack(CHAIN), 16, 64))
    behind.freshness.looked(0, next_offset=1, end=9, at=time.monotonic())
    await behind.server.start()
    try:
        asked = {"model_name": "m", "block_hashes": CHAIN}
        status, answer = await behind.ask(asked)
        assert (status, answer["error"]) == (503, "not_ready")
        status, text = await behind.get("readyz")
        assert (status, text) == (503, "catching up: 8 records to read in 1 partitions\n")
        assert (await behind.get("replicas"))[0] == 503
        behind.freshness.looked(0, next_offset=9, end=9, at=time.monotonic() - 60)
        status, answer = await behind.ask(asked)
        assert status == 200
        assert answer["index"]["stale"] is True
        assert answer["index"]["age_seconds"] >= 60
        assert (await behind.get("readyz"))[0] == 503
        behind.catch_up()
        assert (await behind.get("readyz")) == (200, "ok\n")
    finally:
        await behind.server.stop()


async def test_who_is_slow_keeps_nobody_waiting(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "BODY_SECONDS", 2.0)
    reader, writer = await asyncio.open_connection("127.0.0.1", served.server.port)
    writer.write(b"POST /query_by_hash HTTP/1.1\r\n" + TYPED + b"Content-Length: 100\r\n\r\n{")
    await writer.drain()
    assert (await served.ask({"model_name": "m", "block_hashes": CHAIN}))[0] == 200
    assert b" 408 " in await reader.readline()
    writer.close()
    assert served.refused("slow_body") == 1


async def test_who_does_not_read_an_answer_holds_little_and_not_for_long(
    many: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Far more bytes than sockets take: large answers wait for whoever asked, small ones for nobody."""
    monkeypatch.setattr(serving, "ANSWER_SECONDS", 1.0)
    monkeypatch.setattr(serving, "MOST_UNREAD_BYTES", 1 << 20)
    assert len((await many.ask(LARGE))[1]["answers"]) == 150
    _, writer = await asked_by_hand(many)
    deadline = time.monotonic() + 60
    asked = {"model_name": "m", "block_hashes": CHAIN, "limit": 1}
    while (found := await many.ask(asked))[1].get("error") != "busy":
        assert time.monotonic() < deadline
    assert "bytes of answers" in found[1]["detail"]
    while (await many.ask(asked))[0] != 200:
        assert time.monotonic() < deadline
    assert many.refused("slow_reader") == 1
    writer.close()


@pytest.mark.parametrize(
    "said",
    [b"", b"POST /query_by_hash HTTP/1.1\r\nHost: localhost\r\nContent-"],
)
async def test_who_says_nothing_is_let_go(said: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "IDLE_SECONDS", 0.5)
    quiet = Served()
    await quiet.server.start()
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", quiet.server.port)
        writer.write(said)
        assert await asyncio.wait_for(reader.read(), 60) == b""
        writer.close()
    finally:
        await quiet.server.stop()


@pytest.mark.parametrize(("path", "status"), [("nowhere", 404), ("query_by_hash", 405)])
async def test_pages_that_are_none_are_counted(served: Served, path: str, status: int) -> None:
    got, text = await served.get(path)
    assert (got, json.loads(text)["error"]) == (status, "http_status")
    assert served.refused("http_status") == 1


async def test_no_more_at_once_than_are_taken(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "MOST_AT_ONCE", 1)
    _, writer = await asyncio.open_connection("127.0.0.1", served.server.port)
    writer.write(b"POST /query_by_hash HTTP/1.1\r\n" + TYPED + b"Content-Length: 100\r\n\r\n{")
    await writer.drain()
    deadline = time.monotonic() + 60
    while (found := await served.ask({"model_name": "m", "block_hashes": CHAIN}))[0] != 503:
        assert time.monotonic() < deadline
    assert found[1]["error"] == "busy"
    writer.close()


async def test_answers_are_bounded(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "MOST_ROWS", 5)  # three ranks hold it
    status, answer = await served.ask({"model_name": "m", "prompts": [CHAIN, CHAIN]})
    assert (status, answer["error"]) == (413, "answer_too_large")
    assert (await served.ask({"model_name": "m", "prompts": [CHAIN, CHAIN], "limit": 1}))[0] == 200


async def test_who_has_no_token_learns_nothing() -> None:
    closed = Served(token=TOKEN)
    closed.publish("a", Stored(pack(CHAIN), 16, 64))
    closed.catch_up()
    await closed.server.start()
    try:
        asked = {"model_name": "m", "block_hashes": CHAIN}
        for headers in ({}, {"Authorization": "Bearer wrong"}):
            status, answer = await closed.ask(asked, **headers)
            assert (status, answer["error"]) == (401, "no_token")
            assert (await closed.get("replicas", **headers))[0] == 401
        assert (await closed.ask(asked, Authorization=f"Bearer {TOKEN}"))[0] == 200
        assert (await closed.get("readyz"))[0] == 200
        assert "replica" not in (await closed.get("metrics"))[1]
    finally:
        await closed.server.stop()


async def test_replicas_and_the_document(served: Served) -> None:
    _, text = await served.get("replicas")
    replicas = json.loads(text)["replicas"]
    assert [(one["replica"], one["dp_rank"], one["blocks"]) for one in replicas] == [
        ("a", 0, {"gpu": 4}),
        ("b", 0, {"gpu": 3, "cpu": 1}),
        ("b", 1, {"gpu": 1, "fs": 1}),
    ]
    assert [one["trust"] for one in replicas] == ["complete", "complete", "partial"]
    _, text = await served.get("openapi.json")
    document = json.loads(text)
    paths = {"/query_by_hash", "/choices", "/replicas", *serving.OPEN}
    assert {*document["paths"]} == paths
    told = document["components"]["schemas"]["Problem"]["properties"]["error"]["enum"]
    assert {*get_args(QuestionRefusal)} <= {*told}


async def test_who_hangs_up_in_the_middle_of_an_answer_is_no_error(
    many: Served, caplog: pytest.LogCaptureFixture
) -> None:
    reader, writer = await asked_by_hand(many)
    assert await reader.read(1)
    writer.transport.abort()
    assert len((await many.ask(LARGE))[1]["answers"]) == 150
    assert many.refused("slow_reader") == 0
    assert not caplog.records
