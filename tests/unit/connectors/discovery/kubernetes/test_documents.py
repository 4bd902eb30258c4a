from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.discovery.kubernetes.documents import (
    DocumentMalformed,
    Pod,
    PodDocument,
    decoded_event,
    decoded_failure,
    decoded_page,
    decoded_pod,
    pod_of,
)
from tests.support.pods import pod_document


def _pod(**told: Any) -> Pod | None:
    return pod_of(msgspec.convert(pod_document(**told), PodDocument))


def test_a_pod_is_what_its_document_says() -> None:
    pod = _pod(
        labels={"model": "qwen"}, annotations={"a": "b"}, ports={"http": 8000, "kv-events": 5556}, starts=2
    )
    assert pod == Pod(
        namespace="ml",
        name="vllm-0",
        uid="u1",
        addresses=("10.0.0.7",),
        labels={"model": "qwen"},
        annotations={"a": "b"},
        ports=(("http", 8000), ("kv-events", 5556)),
        restarts=2,
        created="2026-01-01T00:00:00Z",
    )


def test_a_pod_that_has_ended_is_none() -> None:
    assert [
        _pod(phase=phase) is None for phase in ("Pending", "Running", "Unknown", "Failed", "Succeeded")
    ] == [
        False,
        False,
        False,
        True,
        True,
    ]


def test_both_addresses_count_and_sidecars_ports_too() -> None:
    document = pod_document()
    document["status"]["podIPs"] = [{"ip": "10.0.0.7"}, {"ip": "fd00::7"}]
    document["spec"]["initContainers"] = [
        {"name": "proxy", "ports": [{"containerPort": 1, "name": "kv-events"}]}
    ]
    pod = pod_of(msgspec.convert(document, PodDocument))
    assert pod is not None
    assert pod.addresses == ("10.0.0.7", "fd00::7")
    assert pod.ports == (("kv-events", 1),)


def test_a_page_gives_its_pods_and_where_it_goes_on() -> None:
    page = decoded_page(
        msgspec.json.encode(
            {
                "kind": "PodList",
                "metadata": {"resourceVersion": "7", "continue": "next"},
                "items": [pod_document()],
            }
        )
    )
    assert (page.metadata.resource_version, page.metadata.continue_) == ("7", "next")
    assert [document.metadata.name for document in page.items or ()] == ["vllm-0"]


def test_an_event_is_read_in_two_steps() -> None:
    event = decoded_event(msgspec.json.encode({"type": "ADDED", "object": pod_document()}))
    assert (event.type, decoded_pod(event).metadata.uid) == ("ADDED", "u1")
    error = decoded_event(b'{"type":"ERROR","object":{"kind":"Status","code":410,"message":"too old"}}')
    assert decoded_failure(error.object) == (410, "too old")
    assert decoded_failure(b"<html>") == (0, "")


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"items": 3}', b"\xff", b"[" * 100_000])
def test_what_is_no_answer_is_malformed(data: bytes) -> None:
    for decode in (decoded_page, decoded_event):
        with pytest.raises(DocumentMalformed):
            decode(data)


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(_json, st.sampled_from(["metadata", "spec", "status"]), st.data())
def test_any_document_is_a_pod_or_malformed(junk: Any, part: str, data: st.DataObject) -> None:
    document = pod_document(labels={"a": "b"}, ports={"kv-events": 1})
    key = data.draw(st.sampled_from([*document[part], None]))
    if key is None:
        document[part] = junk
    else:
        document[part][key] = junk
    event = decoded_event(msgspec.json.encode({"type": "ADDED", "object": document}))
    try:
        pod = pod_of(decoded_pod(event))
    except DocumentMalformed:
        return
    assert pod is None or all(isinstance(address, str) and address for address in pod.addresses)
