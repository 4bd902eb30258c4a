"""What workers and indexes write for readers has the headers that the AsyncAPI document promises."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import msgspec
import pytest

from connectors.kafka.encoding import Encoding
from pipeline.applying.offered import Offered
from pipeline.generated.examples.catalogue import EXAMPLES
from pipeline.kafka.decoding import decode_choice, decode_residency
from pipeline.kafka.refusal import RecordRefused
from pipeline.residency.cut import Cut
from pipeline.worker.roles.fleet import FleetRole
from pipeline.worker.roles.replica import ReplicaRole
from pipeline.worker.set_aside import KeptAside
from pipeline.worker.sink.figures import Figures
from pipeline.worker.telemetry import WorkerMetrics
from schemas.choices import ChoiceRecord
from schemas.residency import Decisions
from schemas.rows import FlowRow
from schemas.settings import Kafka, Settings
from tests.support.checkout import ROOT

DOCUMENT = json.loads((ROOT / "schemas" / "generated" / "asyncapi.json").read_bytes())
FORMATS = pytest.mark.parametrize("record_format", ["msgpack", "json"])


def promised(message: str, headers: Any) -> dict[str, str]:
    found = {name: value.decode() for name, value in headers}
    schema = DOCUMENT["components"]["messages"][message]["headers"]
    jsonschema.Draft202012Validator(schema).validate(found)
    assert list(found) == schema["required"]
    return found


@FORMATS
def test_residency(record_format: Any) -> None:
    settings = Settings(kafka=Kafka(record_format=record_format))
    example = EXAMPLES["residency"]["filled_and_evicted"]
    value = msgspec.msgpack.encode(example)
    (record,) = ReplicaRole(settings, shards=8).outputs(Cut(9, dirty=True, residency=[(4, b"3", value)]))
    headers = promised("ResidencyRecord", record.headers)
    assert headers["content-type"] == f"application/{record_format}"
    assert headers["ce_source"] == "partition/3"
    assert decode_residency(record.value, record.headers) == example
    assert (record.value == value) == (record_format == "msgpack")


@FORMATS
def test_decisions(record_format: Any) -> None:
    class Decided:
        decisions = (Decisions(1, 5.0, bytes(8), b"\1"),)

    settings = Settings(kafka=Kafka(record_format=record_format))
    records = FleetRole(settings, shards=3).outputs(Decided())
    assert [record.partition for record in records] == [0, 2]
    for record in records:
        assert promised("ResidencyRecord", record.headers)["ce_source"] == "shard/1"
        assert decode_residency(record.value, record.headers).decisions == Decided.decisions[0]


@FORMATS
def test_choices(record_format: Any) -> None:
    encoding = Encoding("choices", Kafka(record_format=record_format))
    for record in EXAMPLES["choices"].values():
        assert isinstance(record, ChoiceRecord)
        headers = encoding.headers(record.replica, record.request_id, record.time)
        promised("ChoiceRecord", headers)
        assert decode_choice(encoding.value(record), headers) == record


def test_set_aside_and_figures() -> None:
    kept = KeptAside("replica", "kvlens.events.v1", 3, "kvlens.set.aside.v1", WorkerMetrics())
    kept.add(Offered(812, b"\xc1"), RecordRefused("malformed", "no MessagePack", ()))
    (record,) = kept.take()
    assert promised("SetAsideRecord", record.headers)["ce_id"] == "kvlens.events.v1/3/812"
    row = FlowRow(*msgspec.structs.astuple(EXAMPLES["figures"]["flow"]))
    (figure,) = Figures(Kafka(), 8).records([row])
    promised("FlowFigure", figure.headers)
