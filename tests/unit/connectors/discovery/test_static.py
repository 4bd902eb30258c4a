from __future__ import annotations

import pytest

from connectors.discovery.static import ReplicaInvalid, list_sources
from schemas.settings import Replica


def test_rank_r_is_on_port_plus_r() -> None:
    replica = Replica(
        id="vllm-0",
        model="qwen",
        endpoint="tcp://10.0.0.7:5557",
        replay_endpoint="tcp://10.0.0.7:5657",
        metrics_url="http://10.0.0.7:8000/metrics",
        dp_ranks=3,
        tenant="acme",
        hash_scheme="sha",
        topic="kv@",
    )
    sources = list_sources([replica])
    assert [(s.key, s.endpoint, s.replay_endpoint) for s in sources] == [
        (("vllm-0", 0), "tcp://10.0.0.7:5557", "tcp://10.0.0.7:5657"),
        (("vllm-0", 1), "tcp://10.0.0.7:5558", "tcp://10.0.0.7:5658"),
        (("vllm-0", 2), "tcp://10.0.0.7:5559", "tcp://10.0.0.7:5659"),
    ]
    assert {(s.model, s.tenant, s.hash_domain, s.topic, s.metrics_url) for s in sources} == {
        ("qwen", "acme", "qwen/sha/acme", "kv@", "http://10.0.0.7:8000/metrics")
    }


def test_one_rank_may_be_on_ipc_and_on_ipv6() -> None:
    replicas = [
        Replica(id="a", model="m", endpoint="ipc:///run/kv.sock"),
        Replica(id="b", model="m", endpoint="tcp://[::1]:5557", dp_ranks=2),
    ]
    assert [s.endpoint for s in list_sources(replicas)] == [
        "ipc:///run/kv.sock",
        "tcp://[::1]:5557",
        "tcp://[::1]:5558",
    ]


@pytest.mark.parametrize(
    ("replicas", "words"),
    [
        ([Replica(id="a", model="m", endpoint="ipc:///x", dp_ranks=2)], "ipc:///x has no port for 2 ranks"),
        ([Replica(id="a", model="m", endpoint="tcp://host")], "not tcp://host:port"),
        ([Replica(id="a", model="m", endpoint="tcp://host:http")], "not tcp://host:port"),
        ([Replica(id="a", model="m", endpoint="tcp://host:65535", dp_ranks=2)], "port 65536"),
        ([Replica(id="a", model="m", endpoint="tcp://h:1")] * 2, "listed 2 times"),
    ],
)
def test_senseless_replicas_are_refused_by_name(replicas: list[Replica], words: str) -> None:
    with pytest.raises(ReplicaInvalid, match=f"replica 'a'.*{words}"):
        list_sources(replicas)
