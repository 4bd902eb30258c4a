"""JSON before which the id of its schema stands: written as others read it, and read by all of ours."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import jsonschema
import msgspec
import pytest

from connectors.kafka.encoding import JSON, Encoding
from connectors.kafka.schema_registry import SCHEMAS, registered_form
from connectors.positions.reader import _mention
from kvlens_reader.decoding import decode
from pipeline.doctor.asking.log_reader import LogReader
from pipeline.generated.examples.catalogue import EXAMPLES
from pipeline.generated.records import RECORDS_OF_TOPIC
from pipeline.generated.topics_file import load_topics
from pipeline.kafka.decoding import decode_choice, decode_events, decode_residency, outline_of
from pipeline.verify.figures import decode_figure
from pipeline.worker.sink.figures import Figures
from schemas.figures import FIGURES
from schemas.json_form import to_json
from schemas.settings import Kafka
from schemas.wire_prefix import prefix, unprefixed

BEFORE = b"\x00\x00\x01\x02\x03"
"""Of schema 66,051."""
HEADERS = [("content-type", JSON)]
CASES = [
    pytest.param(topic, record, id=f"{topic}/{name}")
    for topic in SCHEMAS
    for name, record in EXAMPLES[topic].items()
]


def as_json(topic: str, record: Any) -> bytes:
    return msgspec.json.encode(record) if topic == "figures" else to_json(record)


def test_the_prefix_is_that_of_confluents_serialisers() -> None:
    assert prefix(66_051) == BEFORE
    assert unprefixed(BEFORE + b"{}") == b"{}"
    assert unprefixed(b"{}") == b"{}"
    assert unprefixed(b"") == b""


@pytest.mark.parametrize(("topic", "record"), CASES)
def test_what_is_written_fits_the_schema_that_is_registered(topic: str, record: Any) -> None:
    schema = registered_form(type(record).__name__)
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    plain = msgspec.json.decode(as_json(topic, record))
    validator.validate(plain)
    assert not validator.is_valid(plain | {"of_tomorrow": 1})


def test_every_record_for_readers_has_its_schema() -> None:
    for topic, schemas in SCHEMAS.items():
        assert {record.__name__ for record in RECORDS_OF_TOPIC[topic]} == set(schemas)


@pytest.mark.parametrize(("topic", "record"), CASES)
def test_our_readers_read_both(topic: str, record: Any) -> None:
    plain = as_json(topic, record)
    decoders: dict[str, Any] = {
        "events": decode_events,
        "residency": decode_residency,
        "choices": decode_choice,
        "figures": decode_figure,
    }
    read = decoders[topic]
    assert read(BEFORE + plain, HEADERS, b"k") == read(plain, HEADERS, b"k")
    name = f"prod.{load_topics()[topic].name}"
    assert decode(name, BEFORE + plain, HEADERS) == decode(name, plain, HEADERS)


def test_events_of_tomorrow_are_left_out_behind_a_prefix_too() -> None:
    name = f"prod.{load_topics()['events'].name}"
    value = to_json(EXAMPLES["events"]["run"]).replace(b'"type":"stored"', b'"type":"of_tomorrow"')
    assert decode(name, BEFORE + value, HEADERS) == decode(name, value, HEADERS)


@pytest.mark.parametrize("record", EXAMPLES["events"].values(), ids=EXAMPLES["events"])
def test_who_looks_at_the_log_reads_both(record: Any) -> None:
    def message(before: bytes) -> Any:
        return SimpleNamespace(value=before + to_json(record), headers=HEADERS)

    assert _mention(message(BEFORE)) == _mention(message(b"")) is not None
    assert outline_of(BEFORE + to_json(record), HEADERS) == outline_of(to_json(record), HEADERS) is not None
    seen = []
    for before in (BEFORE, b""):
        reader = LogReader(0.0)
        reader.event(message(before).value, HEADERS, 1.0)
        seen.append(reader.log)
    assert seen[0] == seen[1] != {}


@pytest.mark.parametrize("record", EXAMPLES["choices"].values(), ids=EXAMPLES["choices"])
def test_json_alone_is_written_with_a_prefix(record: Any) -> None:
    written: dict[Any, bytes] = {
        "json": BEFORE + to_json(record),
        "msgpack": msgspec.msgpack.encode(record),
    }
    for record_format, value in written.items():
        encoding = Encoding("choices", Kafka(record_format=record_format))
        encoding.prefixes = {"ChoiceRecord": BEFORE}
        assert encoding.value(record) == value


@pytest.mark.parametrize("kind", FIGURES, ids=lambda kind: kind.TABLE)
def test_each_table_has_its_schema(kind: Any) -> None:
    example = next(one for one in EXAMPLES["figures"].values() if type(one) is FIGURES[kind])
    row = kind(**{name: getattr(example, name) for name in kind.__struct_fields__})
    (plain,) = Figures(Kafka(), 8).records([row])
    (found,) = Figures(Kafka(), 8, {FIGURES[kind].__name__: BEFORE}).records([row])
    assert plain.value is not None
    assert found.value == BEFORE + plain.value
    # A row that comes again is the same event again, whatever its schema is called.
    assert found.headers == plain.headers
