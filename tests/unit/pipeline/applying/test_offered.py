"""Records of the log, as states get them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from connectors.kafka.cloud_events import CloudEvents
from connectors.kafka.encoding import MSGPACK
from pipeline.applying.offered import Offered, offered
from schemas.events import LATEST


def record(offset: int, value: bytes | None, timestamp: int = 1500) -> Any:
    headers = (("content-type", b"x"),)
    return SimpleNamespace(offset=offset, key=None, value=value, headers=headers, timestamp=timestamp)


def test_what_the_log_has() -> None:
    headers = (("content-type", b"x"),)
    assert offered([record(7, b"\0"), record(8, None)]) == [
        Offered(7, b"\0", headers, None, 1.5),
        Offered(8, None, headers, None, 1.5),
    ]


def test_the_same_of_a_record_that_was_not_copied() -> None:
    """What aiokafka's reader of batches makes has all that is asked for."""
    headers = [("content-type", b"x")]
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1 << 16)
    for at, (key, value) in enumerate([(b"r1", b"12"), (None, None), (b"", b"")]):
        builder.append(at, 1500 + at, key, value, headers)
    records = [*DefaultRecordBatch(bytes(builder.build()))]
    assert offered(records) == [
        Offered(0, b"12", headers, b"r1", 1.5),
        Offered(1, None, headers, None, 1.501),
        Offered(2, b"", headers, b"", 1.502),
    ]


def test_no_time_is_too_late_to_be_written_down() -> None:
    """A topic that takes the times of producers takes nanoseconds for milliseconds, too."""
    (one,) = offered([record(7, None, timestamp=1_500 * 10**15)])
    assert one.written_at == LATEST
    assert CloudEvents("set_aside", MSGPACK).headers("place", "one", one.written_at)


def test_of_nothing_there_is_nothing() -> None:
    assert offered([]) == []
