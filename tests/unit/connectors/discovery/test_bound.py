from __future__ import annotations

import pytest

from connectors.discovery.bound import DISPUTE_SECONDS, BoundReplicas, TopicRefused
from connectors.sources import Listening, Peer
from schemas.discovery_settings import BoundEndpoint


def _bound(*endpoints: BoundEndpoint, taken: str = "") -> BoundReplicas:
    return BoundReplicas(endpoints or (BoundEndpoint(endpoint="tcp://*:5557"),), lambda id: id == taken)


def _peer(topic: bytes, port: int = 5557, rank: int = 0) -> Peer:
    return Peer(Listening(f"tcp://*:{port}", rank), topic)


def test_rank_r_connects_to_port_plus_r() -> None:
    endpoints = (BoundEndpoint(endpoint="tcp://*:5557", dp_ranks=2), BoundEndpoint(endpoint="tcp://*:6000"))
    assert list(_bound(*endpoints).listenings) == [
        Listening("tcp://*:5557", 0),
        Listening("tcp://*:5558", 1),
        Listening("tcp://*:6000", 0),
    ]


def test_a_topic_makes_a_source() -> None:
    endpoint = BoundEndpoint(
        endpoint="tcp://*:5557",
        dp_ranks=2,
        tenant="acme",
        role="decode",
        hash_scheme="sha",
        replay_endpoint="tcp://{pod}.engines:5657",
        metrics_url="http://{pod}:8000/metrics",
    )
    bound = _bound(endpoint)
    source = bound.meet(_peer(b"kv@vllm-0@org/model@v2", 5558, 1), 0.0)
    assert source.key == ("vllm-0", 1)
    assert source.model == "org/model@v2"
    assert source.hash_domain == "org/model@v2/sha/acme"
    assert source.endpoint == "tcp://*:5558"
    assert source.role == "decode"
    assert source.replay_endpoint == "tcp://vllm-0.engines:5658"
    assert source.metrics_url == "http://vllm-0:8000/metrics"
    assert bound.sources == [source]
    assert bound.peer(("vllm-0", 1)) == _peer(b"kv@vllm-0@org/model@v2", 5558, 1)
    assert bound.peer(("vllm-0", 0)) is None


@pytest.mark.parametrize(
    ("pod", "host"), [("10.0.0.7:8000", "10.0.0.7"), ("[fd00::7]:8000", "[fd00::7]"), ("a.b", "a.b")]
)
def test_the_port_of_a_pod_is_part_of_its_id_and_not_of_its_address(pod: str, host: str) -> None:
    bound = _bound(BoundEndpoint(endpoint="tcp://*:5557", replay_endpoint="tcp://{pod}:5657"))
    source = bound.meet(_peer(f"kv@{pod}@m".encode()), 0.0)
    assert (source.replica, source.replay_endpoint) == (pod, f"tcp://{host}:5657")


def test_a_configured_model_is_that_of_all() -> None:
    bound = _bound(BoundEndpoint(endpoint="tcp://*:5557", model="qwen"))
    assert bound.meet(_peer(b"kv@a@whatever"), 0.0).model == "qwen"
    assert bound.meet(_peer(b"kv@b@"), 0.0).model == "qwen"


@pytest.mark.parametrize(
    ("topic", "reason"),
    [
        (b"", "not_a_kv_topic"),
        (b"kv-events", "not_a_kv_topic"),
        (b"kv@pod", "not_a_kv_topic"),
        (b"KV@pod@m", "not_a_kv_topic"),
        (b"kv@\xff@m", "not_a_kv_topic"),
        (b"kv@@m", "bad_pod"),
        (b"kv@a b@m", "bad_pod"),
        (b"kv@a/b@m", "bad_pod"),
        (b"kv@a:port@m", "bad_pod"),
        (b"kv@fd00::7@m", "bad_pod"),
        (b"kv@" + b"a" * 300 + b"@m", "bad_pod"),
        (b"kv@a@", "bad_model"),
        (b"kv@a@" + b"m" * 201, "bad_model"),
        (b"kv@a@m\n", "bad_model"),
        (b"kv@static@m", "replica_id_taken"),
    ],
)
def test_topics_that_make_no_replica_have_a_reason(topic: bytes, reason: str) -> None:
    bound = _bound(taken="static")
    with pytest.raises(TopicRefused) as refused:
        bound.meet(_peer(topic), 0.0)
    assert refused.value.reason == reason
    assert bound.sources == []
    assert bound.version == 0


def test_the_number_of_replicas_is_bounded_and_a_place_becomes_free() -> None:
    bound = _bound(BoundEndpoint(endpoint="tcp://*:5557", dp_ranks=2, max_replicas=2))
    for topic in (b"kv@a@m", b"kv@b@m"):
        for rank in (0, 1):
            bound.meet(_peer(topic, 5557 + rank, rank), 0.0)
    with pytest.raises(TopicRefused, match="too_many_replicas"):
        bound.meet(_peer(b"kv@c@m"), 0.0)
    bound.leave(("a", 0))
    with pytest.raises(TopicRefused, match="too_many_replicas"):
        bound.meet(_peer(b"kv@c@m"), 0.0)
    bound.leave(("a", 1))
    assert bound.meet(_peer(b"kv@c@m"), 0.0).replica == "c"
    assert [source.key for source in bound.sources] == [("b", 0), ("b", 1), ("c", 0)]


def test_a_pod_belongs_to_the_endpoint_that_it_came_to_first() -> None:
    bound = _bound(BoundEndpoint(endpoint="tcp://*:5557"), BoundEndpoint(endpoint="tcp://*:6000"))
    bound.meet(_peer(b"kv@a@m"), 0.0)
    with pytest.raises(TopicRefused, match="replica_id_taken"):
        bound.meet(_peer(b"kv@a@m", 6000), 0.0)


def test_a_pod_may_come_with_another_model_once_the_former_is_quiet() -> None:
    bound = _bound()
    bound.meet(_peer(b"kv@a@old"), 100.0)
    version = bound.version
    with pytest.raises(TopicRefused, match="pod_disputed"):
        bound.meet(_peer(b"kv@a@new"), 100.0 + DISPUTE_SECONDS - 0.1)
    assert bound.version == version
    source = bound.meet(_peer(b"kv@a@new"), 100.0 + DISPUTE_SECONDS)
    assert (source.key, source.model) == (("a", 0), "new")
    assert bound.sources == [source]
    assert bound.version > version


def test_a_clock_that_was_set_back_prolongs_no_dispute() -> None:
    bound = _bound()
    bound.meet(_peer(b"kv@a@old"), 3600.0)
    with pytest.raises(TopicRefused, match="pod_disputed"):
        bound.meet(_peer(b"kv@a@new"), 0.0)
    assert bound.meet(_peer(b"kv@a@new"), DISPUTE_SECONDS).model == "new"
