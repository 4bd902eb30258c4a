"""Pods followed over real HTTP, from an API server of the tests' own; `make test-fleet` asks a real one."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from connectors.discovery.kubernetes import api, pod_watch
from connectors.discovery.kubernetes.origin import PodOrigin
from connectors.discovery.shards import Shard
from connectors.process import absence
from schemas.discovery_settings import Kubernetes
from tests.support.kube_api import KubeApi
from tests.support.pods import Told, pod_document

LABELS = {"app": "vllm"}


@pytest.fixture
async def kube() -> AsyncIterator[KubeApi]:
    server = KubeApi()
    await server.start()
    yield server
    await server.stop()


class Following:
    """An origin that follows, and what it wants read."""

    def __init__(self, kube: KubeApi, shard: str = "0/1", **entry: Any) -> None:
        self.told = Told()
        defaults = {
            "selector": "app=vllm",
            "namespaces": ["ml"],
            "model": "qwen",
            "http_port": 0,
            "token_file": "",
            "api_url": kube.url,
        }
        self.entry = msgspec.convert({**defaults, **entry}, Kubernetes)
        self.origin = PodOrigin(0, self.entry, Shard.of(shard).owns, self.told)
        self.changes = 0

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Following]:
        await self.origin.begin()
        task = asyncio.create_task(self.origin.follow(self._changed))
        try:
            yield self
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    def _changed(self) -> None:
        self.changes += 1

    @property
    def lives(self) -> dict[str, str]:
        return {source.replica: source.session_name for source in self.origin.sources}

    @property
    def endpoints(self) -> list[str]:
        return [source.endpoint for source in self.origin.sources]

    async def until(self, reached: Callable[[], bool], seconds: float = 60.0) -> None:
        deadline = time.monotonic() + seconds
        while not reached():
            assert time.monotonic() < deadline, f"not reached; {self.lives} {self.told.failures}"
            await asyncio.sleep(0.02)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_watch, "LEAST_SECONDS", 0.05)


async def test_pods_come_and_go(kube: KubeApi) -> None:
    kube.put(pod_document("a", labels=LABELS))
    kube.put(pod_document("other"))
    kube.put(pod_document("a", namespace="prod", labels=LABELS))
    async with Following(kube).running() as following:
        assert following.lives == {"a": "u1"}
        await following.until(lambda: kube.watching == 1)
        kube.put(pod_document("b", uid="u2", labels=LABELS, ip=None))
        kube.put(pod_document("b", uid="u2", labels=LABELS, ip="10.0.0.8"))
        await following.until(lambda: following.lives == {"a": "u1", "b": "u2"})
        kube.put(pod_document("b", uid="u2", labels=LABELS, ip="10.0.0.8", ready=False))
        kube.put(pod_document("a", labels={"app": "x"}))
        await following.until(lambda: following.lives == {"b": "u2"})
        kube.put(pod_document("b", uid="u2", labels=LABELS, ip="10.0.0.8", phase="Succeeded"))
        await following.until(lambda: following.lives == {})
        assert following.told.lists == 1
        assert following.changes == 3


async def test_what_happened_while_the_server_was_away_is_found(kube: KubeApi) -> None:
    for name in "abc":
        kube.put(pod_document(name, labels=LABELS))
    async with Following(kube).running() as following:
        await following.until(lambda: kube.watching == 1)
        await kube.stop()
        kube.delete("ml", "a", unseen=True)
        kube.delete("ml", "b", unseen=True)
        kube.put(pod_document("b", uid="u9", labels=LABELS))
        await following.until(lambda: following.told.failures.count("unreachable") >= 2)
        assert following.lives == dict.fromkeys("abc", "u1")
        await kube.start()
        await following.until(lambda: following.lives == {"b": "u9", "c": "u1"})


async def test_every_end_of_a_watch_lists_again(kube: KubeApi) -> None:
    kube.put(pod_document("a", labels=LABELS))
    async with Following(kube).running() as following:
        for round_number in range(1, 4):
            await following.until(lambda: kube.watching == 1)
            kube.delete("ml", "a", unseen=True)
            kube.end_watches()
            kube.put(pod_document("a", uid=f"u{round_number}", labels=LABELS))
            await following.until(lambda n=round_number: following.lives == {"a": f"u{n}"})
        assert following.told.failures == []
        assert kube.lists == 4


async def test_a_watch_that_is_too_old_lists_again(kube: KubeApi) -> None:
    following = Following(kube)
    await following.origin.begin()
    kube.put(pod_document("a", labels=LABELS))
    kube.compact()
    async with following.running():
        await following.until(lambda: following.lives == {"a": "u1"})
        kube.compact()
        kube.end_watches(b'{"type":"ERROR","object":{"kind":"Status","code":410,"message":"too old"}}\n')
        kube.put(pod_document("b", labels=LABELS))
        await following.until(lambda: following.lives == {"a": "u1", "b": "u1"})
    assert set(following.told.failures) == {"expired"}


@pytest.mark.parametrize(
    ("refusal", "reason"),
    [
        ((403, '{"kind":"Status","code":403,"message":"pods is forbidden"}'), "forbidden"),
        ((401, '{"kind":"Status","code":401}'), "unauthorised"),
        ((410, '{"kind":"Status","code":410}'), "expired"),
        ((500, "<html>"), "http_status"),
        ((302, ""), "http_status"),
        ((200, '{"kind":"PodList"}'), "malformed"),
        ((200, "<html>"), "malformed"),
    ],
)
async def test_a_refusal_is_told_and_tried_again(
    kube: KubeApi, refusal: tuple[int, str], reason: str
) -> None:
    kube.put(pod_document("a", labels=LABELS))
    kube.refusals = [refusal]
    async with Following(kube).running() as following:
        await following.until(lambda: following.lives == {"a": "u1"})
        assert following.told.failures == [reason]
        await following.until(lambda: kube.watching == 1)
        kube.refusals = [refusal]
        kube.end_watches()
        await following.until(lambda: following.told.failures == [reason, reason])
        assert following.lives == {"a": "u1"}


async def test_lines_that_are_none_end_the_watch_and_change_nothing(
    kube: KubeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api, "MAX_LINE_BYTES", 10_000)
    kube.put(pod_document("a", labels=LABELS))
    async with Following(kube).running() as following:
        for line, reason in (
            (b"{\n", "malformed"),
            (b'{"type":"ADDED","object":{"metadata":[]}}\n', "malformed"),
            (b'"' + b"x" * 20_000, "too_large"),
        ):
            await following.until(lambda: kube.watching == 1)
            before = len(following.told.failures)
            kube.send(line)
            await following.until(lambda n=before: len(following.told.failures) > n)
            assert following.told.failures[-1] == reason
            kube.end_watches()
        assert following.lives == {"a": "u1"}


async def test_bookmarks_and_kinds_to_come_are_passed_over(kube: KubeApi) -> None:
    async with Following(kube).running() as following:
        await following.until(lambda: kube.watching == 1)
        kube.send(b'{"type":"BOOKMARK","object":{"kind":"Pod","metadata":{"resourceVersion":"9"}}}\n')
        kube.send(b'{"type":"NEWER","object":{"kind":"Pod","metadata":{"name":"x","uid":"u"}}}\n')
        kube.put(pod_document("a", labels=LABELS))
        await following.until(lambda: following.lives == {"a": "u1"})
        assert following.told.failures == []


async def test_many_pods_come_in_pages(kube: KubeApi) -> None:
    for number in range(600):
        kube.put(pod_document(f"p{number}", labels=LABELS, ip=f"10.0.{number // 250}.{number % 250}"))
    async with Following(kube).running() as following:
        assert len(following.lives) == 600
        assert len([query for _, query, _ in kube.requests if "watch" not in query]) == 3
        assert kube.lists == 1


async def test_the_oldest_pods_have_the_room_there_is(kube: KubeApi) -> None:
    for name, hour in (("b", 1), ("a", 3), ("c", 2)):
        kube.put(pod_document(name, labels=LABELS, created=f"2026-01-01T0{hour}:00:00Z"))
    async with Following(kube, max_replicas=2).running() as following:
        assert following.lives.keys() == {"b", "c"}
        assert following.told.refused == [("a", "too_many_replicas")]
        await following.until(lambda: kube.watching == 1)
        kube.delete("ml", "b")
        await following.until(lambda: following.lives.keys() == {"a", "c"})


async def test_of_pods_with_one_address_the_one_that_got_it_last_is_read(kube: KubeApi) -> None:
    """A pod whose node is gone keeps its address until somebody deletes it."""
    kube.put(pod_document("gone", labels=LABELS, began="2026-01-01T01:00:00Z"))
    for name in ("x", "y"):
        kube.put(pod_document(name, labels=LABELS, ip="10.0.0.8", began="2026-01-01T01:00:00Z", on_host=True))
    async with Following(kube).running() as following:
        assert following.lives.keys() == {"gone", "x", "y"}
        await following.until(lambda: kube.watching == 1)
        earlier, later = "2025-12-31T00:00:00Z", "2026-01-01T02:00:00Z"
        kube.put(pod_document("next", labels=LABELS, created=earlier, began=later))
        await following.until(lambda: following.lives.keys() == {"next", "x", "y"})
        assert following.told.refused == [("gone", "address_taken")]
        kube.delete("ml", "next")
        await following.until(lambda: following.lives.keys() == {"gone", "x", "y"})


async def test_a_pod_that_cannot_be_read_is_told_once(kube: KubeApi) -> None:
    kube.put(pod_document("a", labels=LABELS, annotations={"kvlens/port": "http"}))
    async with Following(kube).running() as following:
        await following.until(lambda: kube.watching == 1)
        kube.put(pod_document("b", labels=LABELS))
        await following.until(lambda: following.lives == {"b": "u1"})
        assert following.told.refused == [("a", "bad_annotation")]
        kube.put(pod_document("a", labels=LABELS, annotations={"kvlens/port": "6000"}))
        await following.until(lambda: following.lives == {"a": "u1", "b": "u1"})


async def test_all_namespaces_and_several(kube: KubeApi) -> None:
    for namespace in ("ml", "prod", "test"):
        kube.put(pod_document("a", namespace=namespace, uid=namespace, labels=LABELS))
    async with Following(kube, namespaces=["*"]).running() as following:
        assert following.lives == {"ml/a": "ml", "prod/a": "prod", "test/a": "test"}
        assert kube.requests[0][0] == "/api/v1/pods"
    async with Following(kube, namespaces=["ml", "prod"]).running() as following:
        assert following.lives == {"ml/a": "ml", "prod/a": "prod"}


async def test_the_token_is_read_for_every_request(kube: KubeApi, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("first\n")
    async with Following(kube, token_file=str(token)).running() as following:
        await following.until(lambda: kube.watching == 1)
        token.write_text("second\n")
        kube.end_watches()
        await following.until(lambda: kube.lists == 2 and kube.watching == 1)
        sent = [headers["Authorization"] for _, _, headers in kube.requests]
        assert sent == ["Bearer first", "Bearer first", "Bearer second", "Bearer second"]
        token.unlink()
        kube.end_watches()
        await following.until(lambda: following.told.failures == ["no_credentials"])
        assert str(token) in following.told.texts[0]


async def test_a_token_that_would_break_a_header_is_none(kube: KubeApi, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("a\r\nX-Other: b")
    following = Following(kube, token_file=str(token))
    await following.origin.begin()
    assert following.told.failures == ["no_credentials"]
    assert kube.requests == []


async def test_outside_a_pod_it_says_what_to_set(kube: KubeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    following = Following(kube, api_url="")
    await following.origin.begin()
    assert (following.origin.sources, following.told.failures) == ([], ["no_credentials"])
    assert "api_url" in following.told.texts[0]


async def test_each_shard_reads_its_own(kube: KubeApi) -> None:
    for number in range(20):
        kube.put(pod_document(f"p{number}", labels=LABELS))
    shares = []
    for shard in ("0/2", "1/2"):
        async with Following(kube, shard).running() as following:
            shares.append(set(following.lives))
    assert shares[0] | shares[1] == {f"p{number}" for number in range(20)}
    assert not shares[0] & shares[1]
    assert shares[0]
    assert shares[1]


async def test_a_list_that_is_empty_once_removes_no_pod(
    kube: KubeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "abc":
        kube.put(pod_document(name, labels=LABELS))
    lives = dict.fromkeys("abc", "u1")
    async with Following(kube).running() as following:
        await following.until(lambda: kube.watching == 1)
        for name in "abc":
            kube.delete("ml", name, unseen=True)
        kube.end_watches()
        await following.until(lambda: following.told.lists >= 4)
        assert following.lives == lives
        assert following.told.doubts == [("discovery.kubernetes[0] ml", 3, 0)]
        for name in "abc":
            kube.put(pod_document(name, labels=LABELS))
        kube.put(pod_document("d", labels=LABELS))
        await following.until(lambda: kube.watching == 1)
        await following.until(lambda: following.lives == {**lives, "d": "u1"})
        monkeypatch.setattr(absence, "CONFIRM_SECONDS", 0.5)
        for name in "abcd":
            kube.delete("ml", name, unseen=True)
        kube.end_watches()
        await following.until(lambda: following.lives == {})
        await following.until(lambda: kube.watching == 1)


async def test_as_many_other_pods_do_not_make_up_for_those_that_are_missing(
    kube: KubeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "abc":
        kube.put(pod_document(name, labels=LABELS))
    async with Following(kube).running() as following:
        await following.until(lambda: kube.watching == 1)
        kube.end_watches()
        for old, new in zip("abc", "xyz", strict=True):
            kube.delete("ml", old)
            kube.put(pod_document(new, labels=LABELS))
        await following.until(lambda: following.told.lists >= 5)
        assert following.lives.keys() == {*"abcxyz"}
        assert following.told.doubts == [("discovery.kubernetes[0] ml", 3, 0)]
        monkeypatch.setattr(absence, "CONFIRM_SECONDS", 0.0)
        await following.until(lambda: following.lives.keys() == {*"xyz"})
