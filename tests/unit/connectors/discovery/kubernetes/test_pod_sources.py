from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.discovery.kubernetes.annotations import PodRefused
from connectors.discovery.kubernetes.described import Address, Description, Publisher
from connectors.discovery.kubernetes.documents import Pod, PodDocument, pod_of
from connectors.discovery.kubernetes.pod_sources import asked_at, replica_of, sources_of
from connectors.discovery.kubernetes.presets import PRESETS, selector_of
from connectors.sources import Source
from schemas.discovery_settings import Kubernetes
from tests.support.pods import pod_document

PLAIN = Kubernetes(selector="app=vllm", model="qwen")


def _pod(**told: Any) -> Pod:
    pod = pod_of(msgspec.convert(pod_document(**told), PodDocument))
    assert pod is not None
    return pod


def _annotated(**values: str) -> Pod:
    return _pod(annotations={f"kvlens/{key.replace('_', '-')}": value for key, value in values.items()})


def _read(pod: Pod, entry: Kubernetes = PLAIN, description: Description = ()) -> list[Source]:
    def fail(refusal: PodRefused) -> None:
        raise AssertionError(refusal)

    return sources_of(pod, entry, description, fail)


def _ports(sources: list[Source]) -> list[tuple[int, str]]:
    return [(source.dp_rank, source.endpoint.removeprefix("tcp://10.0.0.7:")) for source in sources]


def test_a_pod_is_a_replica_of_its_name_and_its_uid_a_life() -> None:
    assert _read(_pod()) == [
        Source(
            replica="vllm-0",
            dp_rank=0,
            model="qwen",
            tenant="default",
            hash_domain="qwen/vllm-sha256-int64/default",
            endpoint="tcp://10.0.0.7:5557",
            metrics_url="http://10.0.0.7:8000/metrics",
            session_name="u1",
        )
    ]


def test_a_pod_without_an_address_has_no_sources_yet() -> None:
    assert _read(_pod(ip=None)) == []
    assert asked_at(_pod(ip=None), PLAIN) is None


def test_an_ipv6_address_stands_in_brackets() -> None:
    (source,) = _read(_pod(ip="fd00::7"))
    assert (source.endpoint, source.metrics_url) == ("tcp://[fd00::7]:5557", "http://[fd00::7]:8000/metrics")


def test_the_port_is_told_by_annotation_then_the_engine_then_a_name_then_settings() -> None:
    said = (Publisher(0, Address("", 40000)),)
    everything = {"annotations": {"kvlens/port": "6000"}, "ports": {"http": 8000, "kv-events": 5556}}
    assert _ports(_read(_pod(**everything), description=said)) == [(0, "6000")]
    del everything["annotations"]
    assert _ports(_read(_pod(**everything), description=said)) == [(0, "40000")]
    assert _ports(_read(_pod(**everything))) == [(0, "5556")]
    assert _ports(_read(_pod())) == [(0, "5557")]
    assert _ports(_read(_pod(), msgspec.structs.replace(PLAIN, port=20080))) == [(0, "20080")]


def test_ranks_of_a_pod_are_on_ports_in_a_row() -> None:
    assert _ports(_read(_pod(), msgspec.structs.replace(PLAIN, dp_ranks=3))) == [
        (0, "5557"),
        (1, "5558"),
        (2, "5559"),
    ]
    assert _ports(_read(_annotated(ranks="2", first_rank="8"))) == [(8, "5557"), (9, "5558")]


def test_ports_are_counted_from_rank_0_of_all_pods_where_a_base_is_given() -> None:
    by_annotation = _annotated(ranks="2", first_rank="8", port_base="5557", replay_port="5657")
    sources = _read(by_annotation)
    assert _ports(sources) == [(8, "5565"), (9, "5566")]
    assert [source.replay_endpoint for source in sources] == ["tcp://10.0.0.7:5665", "tcp://10.0.0.7:5666"]
    by_settings = msgspec.structs.replace(PLAIN, dp_ranks=2, port_base=5557, index_label="worker-index")
    assert _ports(_read(_pod(labels={"worker-index": "4"}), by_settings)) == [(8, "5565"), (9, "5566")]


def test_a_label_that_counts_pods_gives_the_first_rank() -> None:
    entry = msgspec.structs.replace(PLAIN, dp_ranks=8, index_label="leaderworkerset.sigs.k8s.io/worker-index")
    sources = _read(_pod(labels={"leaderworkerset.sigs.k8s.io/worker-index": "1"}), entry)
    assert _ports(sources) == [(8 + rank, str(5557 + rank)) for rank in range(8)]
    with pytest.raises(PodRefused) as refused:
        _read(_pod(), entry)
    assert refused.value.reason == "bad_annotation"


def test_an_engine_tells_ranks_ports_replay_and_topic() -> None:
    said = (
        Publisher(0, Address("10.0.0.7", 40000), Address("", 40001), "kv@10.0.0.7:8000@llama"),
        Publisher(1, Address("", 40002), Address("", 40003), "kv@10.0.0.7:8000@llama"),
    )
    sources = _read(_pod(), Kubernetes(selector="a"), said)
    assert [(s.dp_rank, s.endpoint, s.replay_endpoint, s.topic, s.model) for s in sources] == [
        (0, "tcp://10.0.0.7:40000", "tcp://10.0.0.7:40001", "kv@10.0.0.7:8000@llama", "llama"),
        (1, "tcp://10.0.0.7:40002", "tcp://10.0.0.7:40003", "kv@10.0.0.7:8000@llama", "llama"),
    ]


def test_what_an_engine_says_of_other_hosts_is_left_to_their_pods() -> None:
    said = tuple(Publisher(rank, Address(f"10.0.0.{7 + rank}", 5557)) for rank in range(3))
    assert _ports(_read(_pod(), description=said)) == [(0, "5557")]
    both = _pod()
    assert _ports(_read(both, description=said[:1])) == [(0, "5557")]


def test_of_wildcards_only_the_ranks_of_the_pod_count() -> None:
    said = tuple(Publisher(rank, Address("", 5557 + rank)) for rank in range(16))
    sources = _read(_annotated(first_rank="8", ranks="8"), description=said)
    assert _ports(sources) == [(rank, str(5557 + rank)) for rank in range(8, 16)]


def test_an_engine_that_connects_to_a_router_cannot_be_read() -> None:
    with pytest.raises(PodRefused, match=r"router\.ml") as refused:
        _read(_pod(), description=(Publisher(0, Address("router.ml", 5557)),))
    assert refused.value.reason == "publishes_elsewhere"


def test_a_replay_elsewhere_is_not_asked_and_costs_no_other_rank_its_own() -> None:
    said = (
        Publisher(0, Address("", 1), Address("10.9.9.9", 2)),
        Publisher(1, Address("", 3), Address("10.0.0.7", 4)),
        Publisher(2, Address("", 5)),
        Publisher(3, Address("", 6), Address("", 7)),
        Publisher(4, Address("", 8), Address("10.9.9.8", 9)),
    )
    notes: list[PodRefused] = []
    sources = sources_of(_pod(), msgspec.structs.replace(PLAIN, replay_port=7000), said, notes.append)
    assert [source.replay_endpoint for source in sources] == [
        None,
        "tcp://10.0.0.7:4",
        None,
        "tcp://10.0.0.7:7",
        None,
    ]
    (note,) = notes
    assert note.reason == "replay_elsewhere"
    assert "rank 0, 4 at 10.9.9.8, 10.9.9.9" in str(note)


@pytest.mark.parametrize(
    ("told", "replay"),
    [
        ({"annotations": {"kvlens/replay-port": "7000"}, "ports": {"kv-replay": 7001}}, "7000"),
        ({"ports": {"kv-replay": 7001}}, "7001"),
        ({"ports": {"kv-events-replay": 7001}}, "7001"),
        ({}, "7002"),
    ],
)
def test_the_replay_port_is_told_like_the_port(told: dict[str, Any], replay: str) -> None:
    (source,) = _read(_pod(**told), msgspec.structs.replace(PLAIN, replay_port=7002))
    assert source.replay_endpoint == f"tcp://10.0.0.7:{replay}"


def test_a_replay_port_that_is_an_event_port_is_left_out() -> None:
    notes: list[PodRefused] = []
    pod = _pod(ports={"kv-events": 5557, "kv-replay": 5558})
    sources = sources_of(pod, msgspec.structs.replace(PLAIN, dp_ranks=2), (), notes.append)
    assert [source.replay_endpoint for source in sources] == [None, None]
    assert [note.reason for note in notes] == ["replay_port_taken"]


def test_the_model_is_told_by_annotation_label_topic_and_settings_in_this_order() -> None:
    entry = msgspec.structs.replace(PLAIN, preset="dynamo", model_label="model")
    said = (Publisher(0, Address("", 1), None, "kv@pod@by-topic@1"),)
    annotations = {"kvlens/model": "by-annotation", "nvidia.com/dynamo-base-model": "by-stack"}
    labels = {"model": "by-label"}
    seen = [_read(_pod(annotations=annotations, labels=labels), entry, said)]
    del annotations["kvlens/model"]
    seen.append(_read(_pod(annotations=annotations, labels=labels), entry, said))
    seen.append(_read(_pod(labels=labels), entry, said))
    seen.append(_read(_pod(), entry, said))
    seen.append(_read(_pod(), entry))
    assert [sources[0].model for sources in seen] == [
        "by-annotation",
        "by-stack",
        "by-label",
        "by-topic@1",
        "qwen",
    ]
    with pytest.raises(PodRefused) as refused:
        _read(_pod(), Kubernetes(selector="a"))
    assert refused.value.reason == "no_model"


@pytest.mark.parametrize(
    ("annotations", "reason"),
    [
        ({"port": "http"}, "bad_annotation"),
        ({"port": "0"}, "bad_annotation"),
        ({"port": "65536"}, "bad_annotation"),
        ({"port": "٣"}, "bad_annotation"),
        ({"ranks": "0"}, "bad_annotation"),
        ({"ranks": "1000", "first-rank": "30"}, "bad_annotation"),
        ({"http-port": "x"}, "bad_annotation"),
        ({"metrics-port": "-1"}, "bad_annotation"),
        ({"port": "65535", "ranks": "2"}, "bad_port"),
        ({"replay-port": "65535", "ranks": "2"}, "bad_port"),
        ({"port-base": "65000", "first-rank": "1000"}, "bad_port"),
        ({"model": "a\nb"}, "bad_model"),
        ({"model": "m" * 201}, "bad_model"),
    ],
)
def test_a_wrong_annotation_costs_its_pod_and_says_so(annotations: dict[str, str], reason: str) -> None:
    pod = _pod(annotations={f"kvlens/{key}": value for key, value in annotations.items()})
    with pytest.raises(PodRefused) as refused:
        _read(pod)
    assert refused.value.reason == reason
    assert "\n" not in str(refused.value)


def test_who_is_asked() -> None:
    assert asked_at(_pod(), PLAIN) == "http://10.0.0.7:8000"
    assert asked_at(_annotated(http_port="8200"), PLAIN) == "http://10.0.0.7:8200"
    assert asked_at(_annotated(port="5557"), PLAIN) is None
    assert asked_at(_annotated(port_base="5557"), PLAIN) is None
    assert asked_at(_annotated(http_port="x"), PLAIN) is None
    for entry in (
        msgspec.structs.replace(PLAIN, http_port=0),
        msgspec.structs.replace(PLAIN, preset="kserve"),
    ):
        assert asked_at(_pod(), entry) is None


def test_metrics_are_read_where_the_pod_the_stack_or_settings_say() -> None:
    assert _read(_annotated(metrics_port="9000"))[0].metrics_url == "http://10.0.0.7:9000/metrics"
    aibrix = msgspec.structs.replace(PLAIN, preset="aibrix")
    labels = {"model.aibrix.ai/port": "8100", "model.aibrix.ai/metric-port": "8101"}
    assert _read(_pod(labels=labels), aibrix)[0].metrics_url == "http://10.0.0.7:8101/metrics"
    assert asked_at(_pod(labels=labels), aibrix) == "http://10.0.0.7:8100"
    del labels["model.aibrix.ai/metric-port"]
    assert _read(_pod(labels=labels), aibrix)[0].metrics_url == "http://10.0.0.7:8100/metrics"
    assert _read(_pod(), msgspec.structs.replace(PLAIN, preset="kserve"))[0].metrics_url is None


def test_names_are_apart_where_namespaces_are() -> None:
    assert replica_of(_pod(), msgspec.structs.replace(PLAIN, namespaces=("ml",))) == "vllm-0"
    assert replica_of(_pod(), msgspec.structs.replace(PLAIN, namespaces=("ml", "prod"))) == "ml/vllm-0"
    assert replica_of(_pod(), msgspec.structs.replace(PLAIN, namespaces=("*",))) == "ml/vllm-0"


STACKS: dict[str, dict[str, Any]] = {
    "llm-d": {
        "labels": {"llm-d.ai/model": "qwen", "llm-d.ai/role": "decode"},
        "ports": {"http": 8200, "kv-events": 5556},
        "expected": "tcp://10.0.0.7:5556",
    },
    "kserve": {
        "labels": {
            "app.kubernetes.io/name": "qwen",
            "app.kubernetes.io/part-of": "llminferenceservice",
            "kserve.io/component": "workload",
        },
        "expected": "tcp://10.0.0.7:5557",
    },
    "aibrix": {
        "labels": {"model.aibrix.ai/name": "qwen", "model.aibrix.ai/kv-events-enabled": "true"},
        "ports": {"kv-events": 5557, "kv-replay": 5558},
        "expected": "tcp://10.0.0.7:5557",
    },
    "production-stack": {
        "labels": {"model": "qwen", "app.kubernetes.io/component": "serving-engine"},
        "ports": {"zmq-port": 55555},
        "expected": "tcp://10.0.0.7:5557",
    },
    "dynamo": {
        "labels": {"nvidia.com/dynamo-component-type": "worker"},
        "annotations": {"nvidia.com/dynamo-base-model": "qwen"},
        "expected": "tcp://10.0.0.7:5557",
    },
}


LLMD = {"llm-d.ai/model": "qwen", "llm-d.ai/inference-serving": "true", "llm-d.ai/engine-type": "vllm"}
KSERVE = {
    "app.kubernetes.io/component": "llminferenceservice-workload",
    "app.kubernetes.io/name": "qwen",
    "app.kubernetes.io/part-of": "llminferenceservice",
    "kserve.io/component": "workload",
}
DYNAMO = {"nvidia.com/dynamo-component": "VllmWorker", "nvidia.com/dynamo-component-class": "worker"}
STORM = {"model.aibrix.ai/name": "qwen", "roleset-name": "qwen-roleset-x", "storm-service-name": "qwen"}
LWS = {"leaderworkerset.sigs.k8s.io/name": "qwen-0-decode", "disaggregatedset.x-k8s.io/name": "qwen"}


@pytest.mark.parametrize(
    ("preset", "labels", "role"),
    [
        ("llm-d", {**LLMD, "llm-d.ai/role": "prefill"}, "prefill"),
        ("llm-d", {**LLMD, "llm-d.ai/role": "decode"}, "decode"),
        ("llm-d", {**LLMD, "llm-d.ai/role": "both"}, "both"),
        ("llm-d", {**LLMD, "llm-d.ai/role": "prefill-decode"}, "both"),
        ("llm-d", {**LLMD, "llm-d.ai/role": "encode-prefill"}, "prefill"),
        ("llm-d", {**LLMD, "llm-d.ai/role": "encode-prefill-decode"}, "both"),
        ("llm-d", LLMD, ""),
        ("kserve", {**KSERVE, "llm-d.ai/role": "decode"}, "decode"),
        ("kserve", {**KSERVE, "llm-d.ai/role": "prefill"}, "prefill"),
        ("dynamo", {**DYNAMO, "nvidia.com/dynamo-component-type": "prefill"}, "prefill"),
        ("dynamo", {**DYNAMO, "nvidia.com/dynamo-component-type": "decode"}, "decode"),
        ("dynamo", {**DYNAMO, "nvidia.com/dynamo-component-type": "worker"}, ""),
        (
            "dynamo",
            {
                **DYNAMO,
                "nvidia.com/dynamo-component-type": "worker",
                "nvidia.com/dynamo-sub-component-type": "decode",
            },
            "decode",
        ),
        ("aibrix", {**STORM, "role-name": "prefill"}, "prefill"),
        ("aibrix", {**STORM, "role-name": "decode"}, "decode"),
        ("vllm", {**LWS, "disaggregatedset.x-k8s.io/role": "decode"}, "decode"),
        ("production-stack", {"model": "qwen"}, ""),
    ],
)
def test_the_labels_of_a_stack_tell_the_role(preset: str, labels: dict[str, str], role: str) -> None:
    entry = msgspec.structs.replace(PLAIN, preset=preset)
    assert [source.role for source in _read(_pod(labels=labels), entry)] == [role]
    annotated = _pod(labels=labels, annotations={"kvlens/role": "both"})
    assert [source.role for source in _read(annotated, entry)] == ["both"]
    told = msgspec.structs.replace(entry, role="prefill")
    assert [source.role for source in _read(_pod(labels=labels), told)] == [role or "prefill"]


def test_a_role_that_says_nothing_is_left_out_and_told() -> None:
    told: list[PodRefused] = []
    pod = _pod(labels={**LLMD, "llm-d.ai/role": "talker"})
    (source,) = sources_of(pod, msgspec.structs.replace(PLAIN, preset="llm-d"), (), told.append)
    assert source.role == ""
    assert [(refusal.reason, str(refusal)) for refusal in told] == [
        ("bad_role", "its role is 'talker', which says nothing here; annotate it with kvlens/role")
    ]


@pytest.mark.parametrize("preset", [name for name in PRESETS if name != "vllm"])
def test_a_preset_knows_its_stack(preset: str) -> None:
    told = dict(STACKS[preset])
    expected = told.pop("expected")
    entry = msgspec.convert({"preset": preset}, Kubernetes)
    (source,) = _read(_pod(**told), entry)
    assert (source.model, source.endpoint) == ("qwen", expected)
    assert _matches(selector_of(entry), told["labels"])
    assert not _matches(selector_of(entry), {"app": "qwen"})


def _matches(selector: str, labels: dict[str, str]) -> bool:
    terms = re.findall(r"([^,\s]+) in \(([^)]*)\)|([^,=\s]+)=([^,]*)", selector)
    return all(
        labels.get(key) in values.split(",") if key else labels.get(name) == value
        for key, values, name, value in terms
    )


_numbers = st.sampled_from(["", "0", "1", "8", "5557", "65535", "65536", "x", "-1", "1e3", "٣", "9" * 40])
_annotations = st.dictionaries(
    st.sampled_from(
        ["port", "port-base", "replay-port", "http-port", "metrics-port", "ranks", "first-rank"]
    ).map("kvlens/{}".format),
    _numbers,
)
_addresses = st.builds(Address, st.sampled_from(["", "10.0.0.7", "10.0.0.8", "x y"]), st.integers(1, 65535))
_descriptions = st.lists(
    st.builds(Publisher, st.integers(0, 1023), _addresses, st.none() | _addresses, st.text(max_size=20)),
    max_size=4,
    unique_by=lambda publisher: publisher.rank,
).map(tuple)


@given(
    annotations=_annotations,
    labels=st.dictionaries(st.sampled_from(["i", "model.aibrix.ai/port"]), _numbers),
    ports=st.dictionaries(st.sampled_from(["kv-events", "kv-replay", "http"]), st.integers(-1, 70000)),
    ranks=st.integers(1, 1024),
    base=st.none() | st.integers(1, 65535),
    index=st.sampled_from(["", "i"]),
    preset=st.sampled_from(list(PRESETS)),
    description=_descriptions,
)
def test_any_pod_gives_endpoints_of_its_own_or_is_refused(
    annotations: dict[str, str],
    labels: dict[str, str],
    ports: dict[str, int],
    ranks: int,
    base: int | None,
    index: str,
    preset: str,
    description: Description,
) -> None:
    entry = msgspec.convert(
        {"preset": preset, "model": "m", "dp_ranks": ranks, "port_base": base, "index_label": index},
        Kubernetes,
    )
    pod = _pod(annotations=annotations, labels=labels, ports=ports)
    try:
        sources = sources_of(pod, entry, description, lambda refusal: None)
    except PodRefused:
        return
    assert sources
    assert len({source.key for source in sources}) == len(sources)
    assert len({source.endpoint for source in sources}) == len(sources) or description
    for source in sources:
        assert 0 <= source.dp_rank < 1024
        for endpoint in filter(None, (source.endpoint, source.replay_endpoint)):
            found = re.fullmatch(r"tcp://10\.0\.0\.7:(\d+)", endpoint)
            assert found is not None
            assert 1 <= int(found[1]) <= 65535
