from __future__ import annotations

from connectors.order.runs import MAX_RUN_BYTES, RunBuilder
from connectors.sources import Source
from schemas.events import Batch, Closed

SOURCE = Source("r", 3, "m", "t", "m/s/t", "tcp://127.0.0.1:1")


def _builder(record_bytes: int = 1000, linger_seconds: float = 0.1) -> RunBuilder:
    builder = RunBuilder(SOURCE, SOURCE.hash_domain, record_bytes=record_bytes, linger_seconds=linger_seconds)
    builder.incarnation = 11
    return builder


def _batch(seq: int | None) -> Batch:
    return Batch(seq, 1.0, 2.0, [])


def test_run_is_closed_by_size_and_holds_consecutive_batches() -> None:
    builder = _builder(record_bytes=1000)
    for seq in range(7):
        builder.add(_batch(seq), 400, 5.0)
    records = builder.take_closed()
    assert [(r.first_seq, r.last_seq, [b.seq for b in r.batches]) for r in records] == [
        (0, 2, [0, 1, 2]),
        (3, 5, [3, 4, 5]),
    ]
    assert builder.take_closed() == []
    builder.flush()
    assert [[b.seq for b in r.batches] for r in builder.take_closed()] == [[6]]


def test_record_says_whose_it_is() -> None:
    builder = _builder()
    builder.duplicates = 4
    builder.add(_batch(9), 10, 5.0)
    builder.flush()
    (record,) = builder.take_closed()
    assert (record.replica, record.dp_rank, record.model, record.tenant, record.hash_domain) == (
        "r",
        3,
        "m",
        "t",
        "m/s/t",
    )
    assert (record.incarnation, record.first_seq, record.last_seq, record.duplicates) == (11, 9, 9, 4)
    assert builder.duplicates == 0


def test_run_is_closed_by_age_of_its_first_batch() -> None:
    builder = _builder(linger_seconds=0.1)
    assert builder.deadline is None
    builder.add(_batch(0), 10, 5.0)
    builder.add(_batch(1), 10, 5.09)
    assert builder.deadline == 5.1
    builder.close_due(5.0999)
    assert builder.take_closed() == []
    builder.close_due(5.1)
    assert [[b.seq for b in r.batches] for r in builder.take_closed()] == [[0, 1]]
    assert builder.deadline is None


def test_clock_that_is_set_back_does_not_hold_a_run() -> None:
    builder = _builder()
    builder.add(_batch(0), 10, 5000.0)
    builder.close_due(1400.0)
    assert len(builder.take_closed()) == 1


def test_no_linger_makes_one_record_of_each_batch() -> None:
    builder = _builder(record_bytes=1 << 20, linger_seconds=0)
    for seq in range(3):
        builder.add(_batch(seq), 10, 5.0)
    assert [[b.seq for b in r.batches] for r in builder.take_closed()] == [[0], [1], [2]]


def test_new_incarnation_closes_the_run() -> None:
    builder = _builder()
    builder.add(_batch(7), 10, 5.0)
    builder.incarnation = 12
    builder.add(_batch(0), 10, 5.0)
    builder.flush()
    records = builder.take_closed()
    assert [(r.incarnation, r.first_seq, r.last_seq) for r in records] == [(11, 7, 7), (12, 0, 0)]


def test_notices_have_no_number() -> None:
    builder = _builder()
    builder.add(Batch(None, 1.0, 1.0, [Closed("removed")]), 10, 5.0)
    builder.flush()
    (record,) = builder.take_closed()
    assert (record.first_seq, record.last_seq) == (None, None)
    builder.add(Batch(None, 1.0, 1.0, [Closed("removed")]), 10, 5.0)
    builder.add(_batch(4), 10, 5.0)
    builder.flush()
    (record,) = builder.take_closed()
    assert (record.first_seq, record.last_seq) == (4, 4)


def test_large_batch_does_not_join_what_would_grow_too_large() -> None:
    builder = _builder(record_bytes=4 << 20)
    builder.add(_batch(0), MAX_RUN_BYTES // 2, 5.0)
    builder.add(_batch(1), MAX_RUN_BYTES // 2 + 1, 5.0)
    builder.flush()
    assert [[b.seq for b in r.batches] for r in builder.take_closed()] == [[0], [1]]


def test_record_carries_the_fingerprint_of_its_last_batch() -> None:
    builder = _builder(record_bytes=1000)
    for seq, fingerprint in ((0, 70), (1, 71), (2, 72), (3, 73)):
        builder.add(_batch(seq), 500, 5.0, fingerprint)
    builder.add(_batch(4), 400, 5.0, 74)
    builder.add(_batch(None), 10, 5.0)
    builder.flush()
    builder.add(_batch(None), 10, 5.0)
    builder.flush()
    assert [(r.last_seq, r.last_fingerprint) for r in builder.take_closed()] == [
        (1, 71),
        (3, 73),
        (4, 74),
        (None, 0),
    ]
