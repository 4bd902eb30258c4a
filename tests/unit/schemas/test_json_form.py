"""Events and residency as JSON: what is packed in MessagePack is a list there, and comes back the same."""

from __future__ import annotations

import json
import struct
from typing import Any

import msgspec
import pytest

from pipeline.generated.examples.catalogue import EXAMPLES
from schemas.events import Batch, EventsRecord, Stored
from schemas.json_form import batch_from_json, from_json, to_json
from schemas.residency import FILLED, Decisions, ResidencyChanges, ResidencyRecord, SourceChanges

EXAMPLE_CASES = [
    pytest.param(record, id=f"{topic}/{name}")
    for topic in ("events", "residency")
    for name, record in EXAMPLES[topic].items()
]


@pytest.mark.parametrize("record", EXAMPLE_CASES)
def test_every_example_comes_back(record: Any) -> None:
    assert from_json(to_json(record), type(record)) == record


def test_residency_by_hand() -> None:
    changes = ResidencyChanges(
        "gpu", 0, bytes.fromhex("9c1d5a7e03b24f60"), bytes([FILLED]), struct.pack("<d", 1.5),
        struct.pack("<I", 16), stored=struct.pack("<I", 7), roots=bytes(8), depths=struct.pack("<H", 3),
        ends=bytes.fromhex("00000000000000ff"),
    )  # fmt: skip
    source = SourceChanges("r", "m", "d", 0, 1, "complete", [changes])
    plain = json.loads(to_json(ResidencyRecord(3, 4, 812, [source])))
    assert plain["sources"][0]["changes"] == [
        {
            "medium": "gpu", "group_idx": 0, "hashes": ["9c1d5a7e03b24f60"], "kinds": ["filled"],
            "times": [1.5], "block_sizes": [16], "stored": [7], "roots": ["0000000000000000"],
            "depths": [3], "ends": ["00000000000000ff"],
        }
    ]  # fmt: skip


def test_decisions_are_numbers_and_truths() -> None:
    said = Decisions(2, 9.5, struct.pack("<2Q", 255, 2**64 - 1), bytes([1, 0]))
    record = ResidencyRecord(2, 2, 0, [], decisions=said)
    plain = json.loads(to_json(record))
    assert plain["decisions"]["runs"] == ["00000000000000ff", "f" * 16]
    assert plain["decisions"]["known"] == [True, False]
    assert from_json(to_json(record), ResidencyRecord) == record


def test_a_batch_alone_is_read_as_in_its_record() -> None:
    batch = Batch(1, 2.0, 3.0, [Stored(bytes(range(16)), 16, parent=bytes(8))], 1)
    record = EventsRecord("r", "m", "d", 0, 1, [batch])
    (alone,) = json.loads(to_json(record))["batches"]
    assert batch_from_json(json.dumps(alone).encode()) == batch


def record_of(event: str) -> str:
    head = '{"replica":"r","model":"m","hash_domain":"d","dp_rank":0,"incarnation":1,'
    return head + f'"batches":[[1,1.0,1.0,[{event}]]]}}'


def stored(hashes: str) -> str:
    return record_of('{"type":"stored","block_size":16,"hashes":' + hashes + "}")


@pytest.mark.parametrize(
    "value",
    [
        "[]", "1", "{}", "null", '{"batches":3}', '{"batches":[[1]]}', '{"batches":[7]}',
        *(
            stored(hashes)
            for hashes in ('"nB1afgOyT2A="', "[7]", '["9c1d"]', '["zz1d5a7e03b24f60"]', "null",
                           '["9c1d5a7e03b24f6","0"]', '[" 9c1d5a7e03b24f6"]', "[[]]")
        ),
        stored('[],"parent":"9c"'),
        stored('[],"parent":[]'),
        record_of("3"),
    ],
)  # fmt: skip
def test_what_is_no_record_is_refused_as_such(value: str) -> None:
    with pytest.raises(msgspec.ValidationError):
        from_json(value.encode(), EventsRecord)


@pytest.mark.parametrize(
    "columns",
    [{"kinds": ["gone"]}, {"times": ["1"]}, {"block_sizes": [-1]}, {"depths": [1.5]}, {"stored": 7}],
)
def test_columns_of_others_are_refused(columns: dict[str, Any]) -> None:
    plain = json.loads(to_json(EXAMPLES["residency"]["cleared"]))
    plain["sources"][0]["changes"][0] |= columns
    with pytest.raises(msgspec.ValidationError):
        from_json(json.dumps(plain).encode(), ResidencyRecord)
