"""kvlens-reader decodes what our own encoders write, and what a newer one may."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from connectors.kafka.encoding import JSON, MSGPACK
from kvlens_reader import NotARecord, decode, topic_of, unknown_events
from pipeline.generated.examples.catalogue import EXAMPLES
from pipeline.generated.topics_file import load_topics
from pipeline.worker.sink.figures import Figures
from schemas.figures import FIGURES
from schemas.json_form import to_json
from schemas.settings import Kafka

READ = ("events", "residency", "choices")
CASES = [
    pytest.param(topic, record, id=f"{topic}/{name}")
    for topic in READ
    for name, record in EXAMPLES[topic].items()
]


def named(topic: str) -> str:
    return f"prod.{load_topics()[topic].name}"


@pytest.mark.parametrize(("topic", "record"), CASES)
def test_every_example_comes_back(topic: str, record: Any) -> None:
    packed, text = msgspec.msgpack.encode(record), to_json(record)
    found = decode(named(topic), packed, [("content-type", MSGPACK)])
    assert msgspec.msgpack.encode(found) == packed
    assert type(found).__name__ == type(record).__name__
    assert type(found).__module__.startswith("kvlens_reader.")
    assert decode(named(topic), text, [("content-type", JSON)]) == found
    assert decode(named(topic), packed) == found


@pytest.mark.parametrize("kind", FIGURES, ids=lambda kind: kind.TABLE)
def test_every_figure_comes_back(kind: Any) -> None:
    example = next(one for one in EXAMPLES["figures"].values() if type(one) is FIGURES[kind])
    row = kind(**{name: getattr(example, name) for name in kind.__struct_fields__})
    (record,) = Figures(Kafka(), 8).records([row])
    assert record.value is not None
    found = decode(record.topic, record.value, record.headers)
    assert found.TABLE == kind.TABLE
    assert {name: getattr(found, name) for name in kind.__struct_fields__} == msgspec.structs.asdict(row)
    assert decode(record.topic, b'{"table":"of_tomorrow","version":1}', record.headers) is None


@pytest.mark.parametrize("as_json", [False, True], ids=["msgpack", "json"])
def test_events_and_fields_of_tomorrow_are_left_out(as_json: bool) -> None:
    encode, kind = (msgspec.json.encode, JSON) if as_json else (msgspec.msgpack.encode, MSGPACK)
    run = EXAMPLES["events"]["run"]
    written = to_json(run) if as_json else encode(run)
    plain = msgspec.json.decode(written) if as_json else msgspec.msgpack.decode(written)
    plain["field_of_tomorrow"] = {"x": 1}
    plain["batches"][1][3].insert(0, {"type": "compressed", "ratio": 0.5})
    headers = [("content-type", kind)]
    found = decode(named("events"), encode(plain), headers)
    assert unknown_events(found) == ("compressed",)
    known = decode(named("events"), written, headers)
    assert found.batches == known.batches
    assert (found.replica, found.first_seq, unknown_events(known)) == ("vllm-0", 0, ())


@pytest.mark.parametrize("headers", [None, [("content-type", b"application/json")]])
@pytest.mark.parametrize("topic", [*READ, "figures"])
@pytest.mark.parametrize("value", [None, b"", b"\xc1", b"{", b"[]", b"{}", b"\x80"])
def test_other_bytes_are_no_record(
    topic: str, value: bytes | None, headers: list[tuple[str, bytes]] | None
) -> None:
    with pytest.raises(NotARecord) as refused:
        decode(named(topic), value, headers)
    assert refused.value.topic == named(topic)


def test_a_damaged_event_is_no_event_of_tomorrow() -> None:
    plain = msgspec.msgpack.decode(msgspec.msgpack.encode(EXAMPLES["events"]["run"]))
    plain["batches"][1][3][0]["hashes"] = 7
    with pytest.raises(NotARecord):
        decode(named("events"), msgspec.msgpack.encode(plain))


def test_names_of_topics() -> None:
    assert topic_of("kvlens.events.v1") == topic_of("events.v1") == topic_of("a.b.events.v1") == "events.v1"
    for other in ("kvlens.events.v2", "my-events.v1", "kvlens.positions.v1"):
        with pytest.raises(NotARecord):
            topic_of(other)
