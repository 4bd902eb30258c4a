"""Figures: what a row becomes in Kafka."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from typing import Any

import msgspec
import pytest

from pipeline.generated.examples.figures import figures_examples
from pipeline.worker.sink.figures import Figures
from schemas.figures import FIGURES
from schemas.fleet_rows import RedundancyRow
from schemas.rows import OccupancyRow, SourceRow
from schemas.setting_rows import ModelRow
from schemas.settings import Kafka
from tests.support.client_partition import client_partition

AT = datetime(2026, 1, 1, 12, 0, 10, tzinfo=timezone.utc)
ROW = OccupancyRow(AT, "m", "vllm-0", 0, "gpu", 0, 16, 5, 3, 48, 0, 0, False, False, "complete", AT, 812)
replace = msgspec.structs.replace


def made(*rows: Any, partitions: int = 8) -> list[Any]:
    return [*Figures(Kafka(), partitions).records(rows)]


def test_a_row_is_one_flat_object_under_the_names_of_its_columns() -> None:
    (record,) = made(ROW)
    assert json.loads(record.value) == {
        "table": "occupancy_10s", "window": "2026-01-01T12:00:10Z", "model": "m", "replica": "vllm-0",
        "dp_rank": 0, "medium": "gpu", "group_idx": 0, "block_size": 16, "entries": 5, "blocks": 3,
        "tokens": 48,
        "covered_blocks": 0, "capacity_blocks": 0, "store_only": False, "at_least": False,
        "trust": "complete",
        "trust_since": "2026-01-01T12:00:10Z", "version": 812,
    }  # fmt: skip
    assert record.topic == "kvlens.figures.v1"
    assert record.key == b"vllm-0"


@pytest.mark.parametrize("kind", FIGURES, ids=lambda kind: kind.TABLE)
def test_the_bytes_are_those_of_the_published_record(kind: Any) -> None:
    """What is written without a copy is what the tagged struct, of which the schema is, encodes to."""
    example = next(one for one in figures_examples().values() if type(one) is FIGURES[kind])
    row = kind(**{name: getattr(example, name) for name in kind.__struct_fields__})
    (record,) = made(row)
    assert record.value == msgspec.json.encode(example)
    assert all(not isinstance(value, dict) for value in json.loads(record.value).values())


def test_all_rows_of_a_replica_are_in_the_partition_of_its_events_in_their_order() -> None:
    rows = [replace(ROW, replica=f"vllm-{number % 3}", version=number) for number in range(9)]
    for partitions in (1, 8, 12):
        records = made(*rows, partitions=partitions)
        assert [json.loads(record.value)["version"] for record in records] == [*range(9)]
        for record in records:
            assert record.partition == client_partition(record.key.decode(), partitions)


def test_headers_are_cloud_events_and_a_row_that_comes_again_is_the_same_event() -> None:
    first, again, newer = made(ROW, replace(ROW), replace(ROW, version=813))
    headers = {name: value.decode() for name, value in first.headers}
    assert {name: value for name, value in headers.items() if name != "ce_id"} == {
        "content-type": "application/json",
        "ce_specversion": "1.0",
        "ce_type": "kvlens.figures.v1",
        "ce_source": "vllm-0",
        "ce_time": "2026-01-01T12:00:10.000000Z",
    }
    assert first.headers == again.headers
    assert headers["ce_id"] != dict(newer.headers)["ce_id"].decode()


def test_figures_are_the_rows_of_a_replica_at_a_time() -> None:
    assert {kind.TABLE for kind in FIGURES} == {
        "occupancy_10s", "flow_10s", "stream_health_10s", "objects_10s", "engine_counters", "fills_10s",
        "capacity_curve_10s", "choices",
    }  # fmt: skip
    of_a_model = RedundancyRow(AT, "d", "m", "gpu", 0, 0, *[0] * 6, 0, 0, 1, "complete", 7)
    assert made(ModelRow("m", 0, 1), of_a_model) == []
    assert SourceRow not in FIGURES, "it is of a session, however long"
