"""Choices posted over HTTP: what is accepted is in the log, what is refused says why, and is counted."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from pipeline.index.choices import endpoint
from pipeline.index.choices import log as choices_log
from pipeline.index.choices.log import ChoiceLog
from pipeline.kafka import topics
from pipeline.local.broker.embedded import EmbeddedBroker
from schemas.events import Stored
from schemas.settings import Kafka, Settings
from tests.support.choices_topic import choices_in, post
from tests.support.inputs.source_walks import pack
from tests.support.served_index import TYPED, Served

CHAIN = [2**64 - 3, 2**63 + 1, 17, 18]
ONE = ("r-1", CHAIN, "a")


def settings_of(broker: EmbeddedBroker) -> Settings:
    prefix = f"choices-{secrets.token_hex(4)}"
    return Settings(
        kafka=Kafka(bootstrap_servers=broker.bootstrap_servers, topic_prefix=prefix, group=prefix)
    )


async def serving(log: ChoiceLog | None, **changes: Any) -> Served:
    one = Served(log, **changes)
    one.publish("a", Stored(pack(CHAIN[:2]), 16, 32))
    one.publish("b", Stored(pack(CHAIN), 16, 64))
    one.catch_up()
    await one.server.start()
    return one


@pytest.fixture
async def kafka(broker: EmbeddedBroker) -> Kafka:
    settings = settings_of(broker)
    await topics.apply(settings)
    return settings.kafka


@pytest.fixture
async def log(kafka: Kafka) -> AsyncIterator[ChoiceLog]:
    log = ChoiceLog(Settings(kafka=kafka))
    await log.connect()
    yield log
    await log.stop()


@pytest.fixture
async def served(log: ChoiceLog) -> AsyncIterator[Served]:
    one = await serving(log)
    yield one
    await one.server.stop()


async def test_what_is_accepted_is_in_the_log(served: Served, kafka: Kafka) -> None:
    decided = time.time() - 30
    choices = post(
        ("r-1", CHAIN, "a"), ("r-2", [f"0x{CHAIN[0]:016x}"], "a"), ("r-3", CHAIN, "gone"), ("r-4", [], "b")
    )
    choices["choices"][0]["time"] = decided
    status, answer = await served.ask(choices, "choices")
    assert status == 200
    index = answer.pop("index")
    assert not index["stale"]
    assert answer == {"accepted": 4, "judged": 3, "worse": 1, "lost_tokens": 32}
    found = {one.request_id: one for one in await choices_in(kafka)}
    assert {name: (one.replica, one.best_tokens, one.chosen_tokens) for name, one in found.items()} == {
        "r-1": ("a", 64, 32),
        "r-2": ("a", 16, 16),
        "r-3": ("gone", 0, 0),
        "r-4": ("b", 0, 0),
    }
    assert (found["r-1"].best_replica, found["r-1"].time, found["r-1"].blocks) == ("b", decided, 4)
    assert [found[name].not_judged for name in ("r-1", "r-3")] == [None, "unknown_replica"]
    assert served.counted("choices", verdict="worse") == 1
    assert served.counted("choices", verdict="best") == 2
    assert served.counted("choices", verdict="unknown_replica") == 1


def changed(**more: Any) -> dict[str, Any]:
    return {"model_name": "m", "choices": [post(ONE)["choices"][0] | more]}


BAD: list[tuple[str, int, Any]] = [
    ("malformed", 400, b'{"model_name": "m", "choices": ['),
    ("malformed", 400, b"\xff\xfe"),
    ("malformed", 400, b'{"x": ' + b"[" * 100_000),
    ("bad_question", 400, b"[]"),
    ("bad_question", 400, {"model_name": "m"}),
    ("bad_question", 400, {"choices": post(ONE)["choices"]}),
    ("bad_question", 400, {"model_name": "m", "choices": [1]}),
    ("bad_question", 400, {"model_name": "m", "choices": [{"request_id": "r", "block_hashes": [1]}]}),
    ("bad_question", 400, changed(request_id="")),
    ("bad_question", 400, changed(request_id=5)),
    ("bad_question", 400, changed(request_id="r" * 129)),
    ("bad_question", 400, changed(request_id="r" * 1_000_000)),
    ("bad_question", 400, changed(instance_id="")),
    ("bad_question", 400, changed(instance_id="a" * 257)),
    ("bad_question", 400, changed(time=-1)),
    ("bad_question", 400, changed(time=1e300)),
    ("bad_question", 400, changed(time=17.5)),
    ("bad_question", 400, changed(time="now")),
    ("bad_question", 400, changed(block_hashes=[1.5])),
    ("bad_question", 400, post(ONE, block_size=-16)),
    ("bad_question", 400, post(ONE, model_name="m" * 300)),
    ("bad_hash", 400, changed(block_hashes=[2**64])),
    ("bad_hash", 400, post(ONE, ("r-2", ["17", "0x0123456789abcdef"], "a"))),
    ("unknown_model", 404, post(ONE, model_name="nobody's")),
    ("unknown_model", 404, post(ONE, tenant_id="nobody")),
    ("too_many_choices", 413, post(*[("r", [], "a")] * 1001)),
    ("too_many_hashes", 413, post(("r", [1] * 70_000, "a"))),
    ("too_large", 413, post(("r", [*range(1_000_000)], "a"))),
]


async def test_bad_choices_are_refused_counted_and_in_no_log(served: Served, kafka: Kafka) -> None:
    for reason, status, body in BAD:
        before = served.refused(reason)
        got, answer = await served.ask(body, "choices")
        assert (got, answer["error"]) == (status, reason), body
        assert 0 < len(answer["detail"]) < 500
        assert served.refused(reason) == before + 1
    assert await choices_in(kafka) == []
    status, answer = await served.ask(post(*[(f"r-{n}", CHAIN, "a") for n in range(1000)]), "choices")
    assert (status, answer["accepted"], answer["lost_tokens"]) == (200, 1000, 32_000)
    assert len(await choices_in(kafka)) == 1000


async def test_an_index_that_is_behind_or_has_a_share_says_so_in_the_record(
    log: ChoiceLog, kafka: Kafka
) -> None:
    behind = Served(log)
    behind.publish("a", Stored(pack(CHAIN), 16, 64))
    await behind.server.start()
    status, answer = await behind.ask(post(ONE), "choices")
    assert (status, answer["error"]) == (503, "not_ready")
    behind.freshness.looked(0, next_offset=9, end=9, at=time.monotonic() - 60)
    status, answer = await behind.ask(post(ONE), "choices")
    assert (status, answer["index"]["stale"]) == (200, True)
    await behind.server.stop()
    share = await serving(log, share="0/2")
    status, answer = await share.ask(post(("r-2", CHAIN, "a")), "choices")
    assert (status, answer["accepted"], answer["judged"]) == (200, 1, 0)
    await share.server.stop()
    found = {one.request_id: one for one in await choices_in(kafka)}
    assert (found["r-1"].stale, found["r-1"].index_age_seconds >= 60) == (True, True)
    assert (found["r-2"].stale, found["r-2"].not_judged, found["r-2"].best_tokens) == (False, "share", 0)


async def test_without_the_setting_nothing_is_taken_and_a_token_is_asked_for() -> None:
    off = await serving(None)
    status, answer = await off.ask(post(ONE), "choices")
    assert (status, answer["error"], off.refused("choices_off")) == (404, "choices_off", 1)
    await off.server.stop()
    closed = await serving(None, token="a-token-of-many-characters")
    assert (await closed.ask(post(ONE), "choices"))[0] == 401
    await closed.server.stop()


async def test_posts_that_wait_leave_questions_their_places(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoint, "MOST_POSTS_AT_ONCE", 1)
    _, writer = await asyncio.open_connection("127.0.0.1", served.server.port)
    writer.write(b"POST /choices HTTP/1.1\r\n" + TYPED + b"Content-Length: 100\r\n\r\n{")
    await writer.drain()
    deadline = time.monotonic() + 60
    while (found := await served.ask(post(ONE), "choices"))[0] != 503:
        assert time.monotonic() < deadline
    assert found[1]["error"] == "busy"
    assert (await served.ask({"model_name": "m", "block_hashes": CHAIN}))[0] == 200
    writer.close()


@pytest.mark.night
async def test_while_kafka_is_away_nothing_is_accepted(
    tmp_path: Path, free_port: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choices_log, "ANSWER_SECONDS", 60.0)
    own = EmbeddedBroker(tmp_path / "broker", free_port())
    settings = settings_of(own)
    log = ChoiceLog(settings)
    served = await serving(log)
    connecting = asyncio.create_task(log.connect())
    try:
        deadline = time.monotonic() + 60
        while "cannot be used" not in (answer := await served.ask(post(ONE), "choices"))[1]["detail"]:
            assert answer[0] == 503
            assert time.monotonic() < deadline, answer
        own.start()
        await topics.apply(settings)
        await asyncio.wait_for(connecting, 60)
        assert (await served.ask(post(ONE), "choices"))[0] == 200
        before = served.counted("choices_unacknowledged")
        own.kill()
        monkeypatch.setattr(choices_log, "ANSWER_SECONDS", 1.0)
        status, answer = await served.ask(post(("r-2", CHAIN, "b")), "choices")
        assert (status, answer["error"]) == (503, "unacknowledged")
        assert "post them again" in answer["detail"]
        assert served.counted("choices_unacknowledged") == before + 1
        assert (await served.ask({"model_name": "m", "block_hashes": CHAIN}))[0] == 200
        monkeypatch.setattr(choices_log, "ANSWER_SECONDS", 10.0)
        own.start()
        deadline = time.monotonic() + 240
        while (await served.ask(post(("r-2", CHAIN, "b")), "choices"))[0] != 200:
            assert time.monotonic() < deadline
        assert {one.request_id for one in await choices_in(settings.kafka)} == {"r-1", "r-2"}
        assert served.counted("choices", verdict="best") == 1
    finally:
        connecting.cancel()
        await log.stop()
        await served.server.stop()
        own.kill()
