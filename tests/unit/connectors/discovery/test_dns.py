from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

import pytest

from connectors.discovery import dns
from connectors.discovery.dns import Addresses, NameUnresolved, NameWatch, named_sources, resolve
from connectors.discovery.presence import Presence
from connectors.process import absence
from connectors.sources import Source
from schemas.discovery_settings import DnsName
from tests.support.patience import PATIENCE


class Told:
    def __init__(self) -> None:
        self.failures: list[tuple[str, str]] = []
        self.doubts: list[tuple[str, int, int]] = []

    def absence_doubted(self, origin: str, known: int, found: int) -> None:
        self.doubts.append((origin, known, found))

    def name_unresolved(self, name: str, reason: str) -> None:
        self.failures.append((name, reason))


def test_an_address_stays_until_it_was_missed_often_enough() -> None:
    addresses = Addresses(3)
    assert addresses.answered(["b", "a", "b"]) == ["a", "b"]
    assert addresses.answered(["b"]) == ["a", "b"]
    assert addresses.answered(["b", "c"]) == ["a", "b", "c"]
    assert addresses.answered(["b", "c"]) == ["b", "c"]


def test_an_address_that_comes_back_counts_anew() -> None:
    addresses = Addresses(2)
    addresses.answered(["a"])
    for _ in range(5):
        assert addresses.answered([]) == ["a"]
        assert addresses.answered(["a"]) == ["a"]
    assert addresses.answered([]) == ["a"]
    assert addresses.answered([]) == []


def test_each_address_is_a_replica_named_by_it() -> None:
    name = DnsName(
        name="engines",
        model="qwen",
        port=5557,
        replay_port=5657,
        metrics_port=8000,
        dp_ranks=2,
        tenant="acme",
        role="decode",
        hash_scheme="sha",
        topic="kv",
    )
    sources = named_sources(name, ["10.0.0.7", "fd00::7"])
    assert [(s.key, s.endpoint, s.replay_endpoint, s.metrics_url) for s in sources] == [
        (
            (f"{host}:5557", rank),
            f"tcp://{host}:{5557 + rank}",
            f"tcp://{host}:{5657 + rank}",
            f"http://{host}:8000/metrics",
        )
        for host in ("10.0.0.7", "[fd00::7]")
        for rank in (0, 1)
    ]
    assert {(s.model, s.tenant, s.hash_domain, s.topic, s.role) for s in sources} == {
        ("qwen", "acme", "qwen/sha/acme", "kv", "decode")
    }


async def test_the_systems_resolver_is_asked() -> None:
    assert set(await resolve("localhost", "ipv4")) == {"127.0.0.1"}
    assert set(await resolve("127.0.0.3", "ipv4")) == {"127.0.0.3"}
    with pytest.raises(NameUnresolved):
        await resolve("no-such-name.invalid", "ipv4")


class Resolver:
    """Gives its answers one after the other; an exception is raised, an event is waited for."""

    def __init__(self, *answers: Sequence[str] | Exception | asyncio.Event) -> None:
        self._answers = list(answers)
        self.asked = 0

    async def __call__(self, name: str, family: str) -> Sequence[str]:
        self.asked += 1
        answer = self._answers.pop(0)
        if isinstance(answer, asyncio.Event):
            await answer.wait()
            return ["10.0.0.9"]
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dns, "ANSWER_SECONDS", 60.0)
    monkeypatch.setattr(dns, "MISSES", 2)


def _watch(resolver: Resolver, told: Told) -> NameWatch:
    return NameWatch(0, DnsName(name="engines", model="m"), told, resolver)


def _ids(sources: list[Source] | None) -> list[str] | None:
    return None if sources is None else [source.replica for source in sources]


async def test_a_failed_resolution_says_nothing_about_the_addresses() -> None:
    told = Told()
    failure = NameUnresolved("Temporary failure in name resolution")
    watch = _watch(Resolver(["10.0.0.1"], failure, failure, failure, [], ["10.0.0.2"]), told)
    answers = [_ids(await watch.resolve()) for _ in range(6)]
    assert answers == [["10.0.0.1:5557"], None, None, None, ["10.0.0.1:5557"], ["10.0.0.2:5557"]]
    assert told.failures == [("engines", "Temporary failure in name resolution")] * 3


async def test_a_slow_resolver_is_not_asked_again_before_it_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dns, "ANSWER_SECONDS", 0.1)
    told = Told()
    answering = asyncio.Event()
    resolver = Resolver(answering, ["10.0.0.1"])
    watch = _watch(resolver, told)
    answers = [_ids(await watch.resolve()) for _ in range(2)]
    answering.set()
    answers += [_ids(await watch.resolve()) for _ in range(2)]
    assert answers[:2] == [None, None]
    assert answers[2] == ["10.0.0.9:5557"]
    assert answers[3] == ["10.0.0.1:5557", "10.0.0.9:5557"]
    assert resolver.asked == 2
    assert told.failures == [("engines", "no answer in 0.1 s")] * 2


async def test_a_name_that_answers_with_nothing_is_believed_after_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told = Told()
    watch = _watch(Resolver(*[["10.0.0.1", "10.0.0.2"]] * 2, *[[]] * 1000), told)
    monkeypatch.setattr(dns, "RESOLVE_SECONDS", 0.1)
    watch._addresses = Addresses(1)
    await watch.begin()
    here = ["10.0.0.1:5557", "10.0.0.2:5557"]
    for confirm_seconds, expected in ((3600.0, here), (0.3, [])):
        monkeypatch.setattr(absence, "CONFIRM_SECONDS", confirm_seconds)
        changes = 0

        def changed() -> None:
            nonlocal changes
            changes += 1

        following = asyncio.create_task(watch.follow(changed))
        deadline = time.monotonic() + PATIENCE
        while changes < 5 or _ids(watch.sources) != expected:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.02)
        following.cancel()
        assert await asyncio.gather(following, return_exceptions=True)
    assert told.doubts == [("discovery.dns[0]", 2, 0)]


def _pods(first: int, count: int = 10) -> list[str]:
    return [f"10.0.0.{number}" for number in range(first, first + count)]


def test_pods_replaced_one_after_the_other_are_followed_at_once() -> None:
    told = Told()
    addresses, presence = Addresses(1), Presence("discovery.dns[0]", told)
    name = DnsName(name="engines", model="m")
    presence.begin(named_sources(name, addresses.answered(_pods(0))))
    for answer in range(1, 20):
        sources = named_sources(name, addresses.answered(_pods(answer)))
        assert presence.answered(sources, dns.RESOLVE_SECONDS * answer) == sources
    assert told.doubts == []


@pytest.mark.parametrize("at_once", [6, 10])
def test_pods_replaced_faster_than_that_are_followed_once_it_is_confirmed(at_once: int) -> None:
    """However many come, those of before stay until then: it may be another view of the name."""
    told = Told()
    addresses, presence = Addresses(1), Presence("discovery.dns[0]", told)
    name = DnsName(name="engines", model="m")
    before = presence.begin(named_sources(name, addresses.answered(_pods(0))))
    now = 100.0
    for moved in range(at_once, 3 * at_once, at_once):
        sources = named_sources(name, addresses.answered(_pods(moved)))
        counted = {source.replica for source in presence.answered(sources, now)}
        assert counted == {source.replica for source in (*before, *sources)}
        now += dns.RESOLVE_SECONDS
    assert told.doubts == [("discovery.dns[0]", 10, 10 - at_once)]
    assert presence.answered(sources, 100.0 + absence.CONFIRM_SECONDS) == sources
