from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from connectors.discovery.kubernetes.documents import PodDocument
from connectors.discovery.kubernetes.pod_set import PodSet
from tests.support.pods import pod_document


def _document(*name: str, **told: Any) -> PodDocument:
    return msgspec.convert(pod_document(*name, **told), PodDocument)


def _held(pods: PodSet) -> dict[str, tuple[str, tuple[str, ...]]]:
    return {pod.name: (pod.uid, pod.addresses) for pod in pods.pods}


def test_a_list_is_all_there_is() -> None:
    pods = PodSet()
    pods.listed([_document("a"), _document("b")])
    pods.listed([_document("b"), _document("c"), _document("d", phase="Failed")])
    assert _held(pods).keys() == {"b", "c"}


def test_a_pod_that_is_not_ready_stays() -> None:
    pods = PodSet()
    pods.changed("ADDED", _document())
    for _ in range(3):
        pods.changed("MODIFIED", _document(ready=False))
    pods.changed("MODIFIED", _document(ready=False, phase="Unknown"))
    assert _held(pods) == {"vllm-0": ("u1", ("10.0.0.7",))}


def test_a_pod_whose_address_is_no_longer_told_keeps_it() -> None:
    pods = PodSet()
    pods.changed("ADDED", _document())
    pods.changed("MODIFIED", _document(ip=None))
    assert _held(pods) == {"vllm-0": ("u1", ("10.0.0.7",))}
    pods.listed([_document(ip=None)])
    assert _held(pods) == {"vllm-0": ("u1", ("10.0.0.7",))}
    pods.listed([_document(uid="u2", ip=None)])
    assert _held(pods) == {"vllm-0": ("u2", ())}


def test_deleted_ended_or_without_its_label_it_is_gone() -> None:
    for kind, told in (
        ("DELETED", {}),
        ("MODIFIED", {"phase": "Failed"}),
        ("MODIFIED", {"phase": "Succeeded"}),
    ):
        pods = PodSet()
        pods.changed("ADDED", _document("a"))
        pods.changed("ADDED", _document("b"))
        pods.changed(kind, _document("a", **told))
        assert _held(pods).keys() == {"b"}


def test_what_ends_of_a_former_life_takes_nothing_from_the_next() -> None:
    pods = PodSet()
    pods.listed([_document(uid="new")])
    pods.changed("DELETED", _document(uid="old"))
    pods.changed("MODIFIED", _document(uid="old", phase="Failed"))
    assert _held(pods) == {"vllm-0": ("new", ("10.0.0.7",))}


def test_the_same_name_in_two_namespaces_is_two_pods() -> None:
    pods = PodSet()
    pods.listed([_document(namespace="a"), _document(namespace="b", uid="u2")])
    assert {pod.key: pod.uid for pod in pods.pods} == {("a", "vllm-0"): "u1", ("b", "vllm-0"): "u2"}


def test_what_did_not_change_stays_the_same_object() -> None:
    pods = PodSet()
    pods.changed("ADDED", _document())
    (before,) = pods.pods
    pods.changed("MODIFIED", _document(ready=False))
    pods.listed([_document()])
    assert pods.pods[0] is before
    pods.changed("MODIFIED", _document(labels={"model": "other"}))
    assert pods.pods[0] is not before


_lives = st.tuples(st.sampled_from("ab"), st.integers(0, 2), st.sampled_from(["Running", "Failed"]))
_steps = st.one_of(
    st.tuples(st.just("list"), st.lists(_lives, max_size=2, unique_by=lambda life: life[0])),
    st.tuples(st.sampled_from(["ADDED", "MODIFIED", "DELETED"]), _lives),
)


@given(st.lists(_steps, max_size=12))
def test_any_history_leaves_what_counting_by_hand_leaves(steps: list[tuple[str, Any]]) -> None:
    pods = PodSet()
    expected: dict[str, str] = {}
    for kind, told in steps:
        if kind == "list":
            pods.listed([_document(name, uid=f"u{life}", phase=phase) for name, life, phase in told])
            expected = {name: f"u{life}" for name, life, phase in told if phase == "Running"}
            continue
        name, life, phase = told
        pods.changed(kind, _document(name, uid=f"u{life}", phase=phase))
        if kind == "DELETED" or phase == "Failed":
            if expected.get(name) == f"u{life}":
                del expected[name]
        else:
            expected[name] = f"u{life}"
    assert {pod.name: pod.uid for pod in pods.pods} == expected
