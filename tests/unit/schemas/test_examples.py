"""Every example decodes with the structs of today, says the same again, and fits its JSON Schema."""

from __future__ import annotations

import json
import struct
from typing import Any, get_args

import jsonschema
import msgspec
import pytest

import schemas.events
import schemas.residency
from pipeline.generated.examples.catalogue import EXAMPLES
from pipeline.generated.records import JSON_FORM, RECORDS, RECORDS_OF_TOPIC, json_of
from pipeline.generated.topics_file import load_topics
from schemas.events import EventsRecord
from schemas.hashes import unpack_hashes
from schemas.json_form import from_json, to_json
from schemas.residency import ResidencyRecord
from tests.support.checkout import ROOT

CASES = [
    pytest.param(topic.name, name, type(record), id=f"{topic.name}/{name}")
    for table, topic in load_topics().items()
    for name, record in EXAMPLES[table].items()
]


JSON_ONLY = {topic.name for topic in load_topics().values() if topic.json_only}


def example(topic: str, name: str, suffix: str) -> bytes:
    return (ROOT / "schemas" / "examples" / "current" / topic / f"{name}{suffix}").read_bytes()


def read_json(text: bytes, record: type[Any]) -> Any:
    return from_json(text, record) if record in JSON_FORM else msgspec.json.decode(text, type=record)


def schema(record: type) -> dict[str, Any]:
    return json.loads((ROOT / "schemas" / "generated" / f"{record.__name__}.schema.json").read_bytes())


@pytest.mark.parametrize(
    ("topic", "name", "record"), [case for case in CASES if case.values[0] not in JSON_ONLY]
)
def test_both_encodings_say_the_same_and_come_back_equal(topic: str, name: str, record: type) -> None:
    text, packed = example(topic, name, ".json"), example(topic, name, ".msgpack")
    by_json = read_json(text, record)
    by_msgpack = msgspec.msgpack.decode(packed, type=record)
    assert by_json == by_msgpack
    assert msgspec.msgpack.encode(by_json) == packed
    assert json.loads(json_of(by_msgpack)) == json.loads(text)


@pytest.mark.parametrize(("topic", "name", "record"), CASES)
def test_example_fits_its_published_schema(topic: str, name: str, record: type) -> None:
    jsonschema.Draft202012Validator(schema(record)).validate(json.loads(example(topic, name, ".json")))


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.__name__)
def test_published_schema_is_valid_and_strict_about_types(record: type) -> None:
    jsonschema.Draft202012Validator.check_schema(schema(record))
    validator = jsonschema.Draft202012Validator(schema(record))
    for table, records in RECORDS_OF_TOPIC.items():
        if record not in records:
            continue
        one = next(example for example in EXAMPLES[table].values() if type(example) is record)
        fields = json.loads(json_of(one))
        for name in schema(record)["required"]:
            wrong = "no map" if isinstance(fields[name], dict) else {"no": "such type"}
            assert not validator.is_valid({**fields, name: wrong}), name
            del (without := dict(fields))[name]
            assert not validator.is_valid(without), name


def test_every_record_type_has_an_example() -> None:
    shown = {type(record) for records in EXAMPLES.values() for record in records.values()}
    assert shown == set(RECORDS)


def test_every_kind_of_event_has_an_example_named_after_it() -> None:
    for kind in get_args(schemas.events.Event):
        tag = kind.__struct_config__.tag
        record = EXAMPLES["events"][tag]
        assert isinstance(record, EventsRecord)
        assert any(type(event) is kind for batch in record.batches for event in batch.events), tag


def test_every_kind_of_change_occurs() -> None:
    kinds = {
        kind
        for record in EXAMPLES["residency"].values()
        if isinstance(record, ResidencyRecord)
        for source in record.sources
        for changes in source.changes
        for kind in changes.kinds
    }
    assert kinds == {
        schemas.residency.FILLED,
        schemas.residency.EVICTED,
        schemas.residency.CLEARED,
        schemas.residency.EXPIRED,
        schemas.residency.SUBSUMED,
    }


def test_columns_of_residency_examples_have_one_length_and_lie_in_their_shard() -> None:
    partitions = load_topics()["residency"].partitions
    for record in EXAMPLES["residency"].values():
        assert isinstance(record, ResidencyRecord)
        for changes in (part for source in record.sources for part in source.changes):
            hashes = unpack_hashes(changes.hashes)
            assert len(changes.kinds) == len(hashes)
            assert len(changes.times) == 8 * len(hashes)
            assert len(changes.block_sizes) == 4 * len(hashes)
            assert {block * partitions >> 64 for block in hashes} == {record.shard}
            times = struct.unpack(f"<{len(hashes)}d", changes.times)
            assert list(times) == sorted(times)


def test_run_example_by_hand() -> None:
    """The published bytes, read without our structs."""
    record = json.loads(example("events.v1", "run", ".json"))
    opened, first, second, third = record["batches"]
    assert opened[0] is None
    assert (
        [batch[0] for batch in (first, second, third)]
        == [0, 1, 2]
        == list(range(record["first_seq"], record["last_seq"] + 1))
    )
    (stored,) = first[3]
    prompt = stored["hashes"]
    assert prompt[0] == "9c1d5a7e03b24f60"
    assert stored["tokens"] == len(prompt) * stored["block_size"] == 48
    (answer,) = second[3]
    assert answer["parent"] == prompt[-1]
    removed, again = third[3]
    assert len(removed["hashes"]) == 3
    assert again == stored
    assert third[4] == 4, "three removals of the engine, merged into one, and a store"


@pytest.mark.parametrize(("topic", "name", "record"), CASES)
def test_unknown_fields_are_ignored(topic: str, name: str, record: type) -> None:
    """A reader of today reads what a writer of tomorrow adds to maps and arrays, and the schema allows it."""
    known = read_json(example(topic, name, ".json"), record)
    extended = with_additions(known)
    packed = msgspec.msgpack.encode(extended)
    text = to_json(extended) if record in JSON_FORM else msgspec.json.encode(extended)
    assert topic in JSON_ONLY or msgspec.msgpack.decode(packed, type=record) == known
    assert read_json(text, record) == known
    jsonschema.Draft202012Validator(schema(record)).validate(json.loads(text))


def with_additions(value: Any) -> Any:
    """The wire form of a record in which every struct has a field more."""
    if isinstance(value, msgspec.Struct):
        fields = {name: with_additions(getattr(value, name)) for name in value.__struct_fields__}
        if value.__struct_config__.array_like:
            return [*fields.values(), {"of": "tomorrow"}]
        config = value.__struct_config__
        tag = {config.tag_field: config.tag} if config.tag else {}
        return {"field_of_tomorrow": [1, {"of": "tomorrow"}], **tag, **fields}
    if isinstance(value, list):
        return [with_additions(item) for item in value]
    return value
