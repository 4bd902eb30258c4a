"""Whose positions count, and behind which ones somebody may have published what nobody accounts for."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace

import msgspec
import pytest

from connectors.positions.reader import HORIZON_SECONDS, Found, Stored, _decode_position, _mention
from schemas.json_form import to_json
from schemas.positions import PositionRecord
from tests.support.inputs.event_records import batch, record

Written = tuple[str, int, int, int]
"""Connector, offset, incarnation, sequence number."""


def found(*written: Written) -> Stored | None:
    of_source = Found()
    for at, (connector, offset, incarnation, seq) in enumerate(written):
        position = PositionRecord("a", 0, 3, offset, incarnation, seq, connector=connector)
        of_source.add(Stored(position, float(at)))
    return of_source.furthest


def test_nothing_is_found_where_nothing_was_written() -> None:
    assert found() is None


@pytest.mark.parametrize(
    ("written", "counts", "others"),
    [
        ([("x", 1, 7, 3)], 0, []),
        ([("x", 1, 7, 3), ("x", 2, 7, 4)], 1, []),
        ([("x", 1, 7, 3), ("y", 2, 7, 3)], 1, [(2, 0)]),
        ([("x", 1, 7, 3), ("y", 2, 7, 3), ("x", 5, 7, 9)], 2, [(2, 1)]),
        ([("x", 1, 7, 3), ("y", 2, 7, 3), ("y", 4, 8, 0), ("x", 5, 7, 9)], 2, [(5, 3)]),
        ([("x", 1, 7, 3), ("y", 2, 7, 3), ("x", 5, 7, 9), ("z", 6, 7, 9)], 3, [(6, 1), (6, 2)]),
        (
            [("x", 1, 7, 3), ("y", 2, 7, 3), ("z", 3, 7, 3), ("x", 5, 7, 9), ("y", 6, 7, 8)],
            3,
            [(3, 2), (6, 4)],
        ),
    ],
    ids=[
        "one",
        "the last of one",
        "who begins has read what was before",
        "who wrote on does not know what the other one did",
        "the later session counts",
        "from where somebody began",
        "three",
    ],
)
def test_the_furthest_counts_and_others_are_read_on_from_where_they_were(
    written: Sequence[Written], counts: int, others: Sequence[tuple[int, int]]
) -> None:
    stored = found(*written)
    assert stored is not None
    assert stored.point == (written[counts][1], counts)
    assert sorted(stored.others) == others


@pytest.mark.parametrize(("seconds", "others"), [(HORIZON_SECONDS, [(2, 0.0)]), (HORIZON_SECONDS + 1, [])])
def test_who_wrote_nothing_for_long_publishes_nothing_more(
    seconds: float, others: Sequence[tuple[int, float]]
) -> None:
    of_source = Found()
    of_source.add(Stored(PositionRecord("a", 0, 3, 1, 7, 3, connector="x"), 0.0))
    of_source.add(Stored(PositionRecord("a", 0, 3, 2, 7, 3, connector="y"), seconds))
    assert of_source.furthest is not None
    assert [*of_source.furthest.others] == others


@pytest.mark.parametrize("field", ["incarnation", "last_seq", "last_fingerprint"])
def test_a_record_that_nobody_can_read_is_not_looked_at(field: str) -> None:
    told = to_json(record(batch(3, 1.0), life=77, last_fingerprint=9))
    huge = msgspec.json.encode({**msgspec.json.decode(told), field: 0}).replace(
        f'"{field}":0'.encode(), f'"{field}":{10**30}'.encode()
    )
    for value, found in ((told, True), (huge, False)):
        message = SimpleNamespace(value=value, headers=[("content-type", b"application/json")])
        assert (_mention(message) is not None) is found


def test_a_position_that_no_record_has_counts_for_nothing() -> None:
    written = msgspec.msgpack.encode(PositionRecord("a", 0, 3, 1, 2**63))
    with pytest.raises(msgspec.ValidationError):
        _decode_position(written)
