from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.discovery.kubernetes.described import (
    SGLANG_PATH,
    VLLM_PATH,
    Address,
    Description,
    DescriptionMalformed,
    Publisher,
    described,
)


def _vllm(*sources: dict[str, Any]) -> Description:
    return described(VLLM_PATH, msgspec.json.encode(sources))


def _sglang(events: dict[str, Any] | None) -> Description:
    return described(
        SGLANG_PATH, msgspec.json.encode({"model_path": "m", "api_key": "x", "kv_events": events})
    )


def test_vllm_names_the_sockets_of_each_rank() -> None:
    answer = _vllm(
        {
            "data_parallel_rank": 1,
            "endpoint": "tcp://*:40001",
            "replay_endpoint": "tcp://10.0.0.7:40002",
            "topic": "kv@p@m",
        },
        {"data_parallel_rank": 0, "endpoint": "tcp://[fd00::7]:5557", "replay_endpoint": None, "topic": ""},
    )
    assert answer == (
        Publisher(0, Address("fd00::7", 5557)),
        Publisher(1, Address("", 40001), Address("10.0.0.7", 40002), "kv@p@m"),
    )


def test_a_rank_that_is_null_is_the_only_one() -> None:
    assert _vllm({"data_parallel_rank": None, "endpoint": "tcp://0.0.0.0:5557", "topic": ""}) == (
        Publisher(0, Address("", 5557)),
    )


def test_an_engine_without_events_says_nothing() -> None:
    assert _vllm() == ()
    assert _sglang(None) == ()
    assert _sglang({"publisher": "null", "endpoint_port_base": 1}) == ()
    assert described(SGLANG_PATH, b'{"vllm_config": {}}') == ()


def test_sglang_counts_its_ports_on() -> None:
    answer = _sglang(
        {"publisher": "zmq", "endpoint_host": "*", "endpoint_port_base": 5557, "topic": "kv", "dp_size": 2}
    )
    assert answer == (
        Publisher(0, Address("", 5557), None, "kv"),
        Publisher(1, Address("", 5558), None, "kv"),
    )


@pytest.mark.parametrize(
    "endpoint",
    [
        "ipc:///tmp/kv",
        "tcp://host",
        "tcp://host:0",
        "tcp://host:70000",
        "tcp://h:-1",
        "5557",
        "",
        "tcp://h:²",
    ],
)
def test_an_endpoint_that_nobody_can_read_is_malformed(endpoint: str) -> None:
    with pytest.raises(DescriptionMalformed):
        _vllm({"data_parallel_rank": 0, "endpoint": endpoint})


@pytest.mark.parametrize(
    "sources",
    [
        [{"data_parallel_rank": 0, "endpoint": "tcp://*:1"}] * 2,
        [{"data_parallel_rank": -1, "endpoint": "tcp://*:1"}],
        [{"data_parallel_rank": 1024, "endpoint": "tcp://*:1"}],
        [{"data_parallel_rank": 0}],
        [{"data_parallel_rank": rank, "endpoint": "tcp://*:1"} for rank in [*range(1024), 5]],
    ],
)
def test_ranks_are_bounded_and_there_once(sources: list[dict[str, Any]]) -> None:
    with pytest.raises(DescriptionMalformed):
        _vllm(*sources)


def test_ports_of_sglang_stay_ports() -> None:
    with pytest.raises(DescriptionMalformed):
        _sglang({"publisher": "zmq", "endpoint_port_base": 65535, "dp_size": 2})


@given(
    st.binary(max_size=60) | st.text(max_size=60).map(str.encode), st.sampled_from([VLLM_PATH, SGLANG_PATH])
)
def test_any_page_is_a_description_or_malformed(page: bytes, path: str) -> None:
    try:
        answer = described(path, page)
    except DescriptionMalformed:
        return
    assert all(1 <= publisher.events.port <= 65535 for publisher in answer)
