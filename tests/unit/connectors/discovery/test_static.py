from __future__ import annotations

import pytest

from connectors.discovery.static import ReplicaInvalid, list_sources
from schemas.discovery_settings import Replica


def test_rank_r_is_on_port_plus_r() -> None:
    replica = Replica(
        id="vllm-0",
        model="qwen",
        endpoint="tcp://10.0.0.7:5557",
        replay_endpoint="tcp://10.0.0.7:5657",
        metrics_url="http://10.0.0.7:8000/metrics",
        dp_ranks=3,
        tenant="acme",
        role="decode",
        hash_scheme="sha",
        topic="kv@",
    )
    sources = list_sources([replica])
    assert [(s.key, s.endpoint, s.replay_endpoint) for s in sources] == [
        (("vllm-0", 0), "tcp://10.0.0.7:5557", "tcp://10.0.0.7:5657"),
        (("vllm-0", 1), "tcp://10.0.0.7:5558", "tcp://10.0.0.7:5658"),
        (("vllm-0", 2), "tcp://10.0.0.7:5559", "tcp://10.0.0.7:5659"),
    ]
    assert {(s.model, s.tenant, s.hash_domain, s.topic, s.metrics_url, s.role) for s in sources} == {
        ("qwen", "acme", "qwen/sha/acme", "kv@", "http://10.0.0.7:8000/metrics", "decode")
    }


def test_ranks_may_be_on_ipc_and_on_ipv6() -> None:
    replicas = [
        Replica(id="a", model="m", endpoint="ipc:///run/kv.sock", dp_ranks=2),
        Replica(id="b", model="m", endpoint="tcp://[::1]:5557", dp_ranks=2),
    ]
    assert [s.endpoint for s in list_sources(replicas)] == [
        "ipc:///run/kv.sock",
        "ipc:///run/kv.sock_dp1",
        "tcp://[::1]:5557",
        "tcp://[::1]:5558",
    ]


def test_ranks_of_other_hosts_come_before() -> None:
    replica = Replica(
        id="a",
        model="m",
        endpoint="tcp://host:5557",
        replay_endpoint="ipc:///run/replay",
        dp_ranks=2,
        first_rank=8,
    )
    assert [(s.dp_rank, s.endpoint, s.replay_endpoint) for s in list_sources([replica])] == [
        (8, "tcp://host:5565", "ipc:///run/replay_dp8"),
        (9, "tcp://host:5566", "ipc:///run/replay_dp9"),
    ]


@pytest.mark.parametrize(
    ("replicas", "words"),
    [
        ([Replica(id="a", model="m", endpoint="tcp://host:65530", first_rank=8)], "rank 8 .* port 65538"),
        ([Replica(id="a", model="m", endpoint="tcp://host")], "not tcp://host:port"),
        ([Replica(id="a", model="m", endpoint="tcp://host:http")], "not tcp://host:port"),
        ([Replica(id="a", model="m", endpoint="tcp://host:65535", dp_ranks=2)], "port 65536"),
        ([Replica(id="a", model="m", endpoint="tcp://h:1")] * 2, "listed 2 times"),
    ],
)
def test_senseless_replicas_are_refused_by_name(replicas: list[Replica], words: str) -> None:
    with pytest.raises(ReplicaInvalid, match=f"replica 'a'.*{words}"):
        list_sources(replicas)
