"""The order of a log whose sources moved between partitions, with brokers whose clocks differ."""

from __future__ import annotations

from collections import defaultdict
from itertools import count

from hypothesis import given
from hypothesis import strategies as st

from pipeline.kafka.merging import Merge

PARTITIONS = 4
SKEW_SECONDS = 3.0
AHEAD_SECONDS = 2 * SKEW_SECONDS + 1.0

Record = tuple[str, int, int | None, int]
"""Source, incarnation, number, and the order in which it was written."""


def merged(log: dict[int, list[tuple[float, Record]]], ahead: float = AHEAD_SECONDS) -> list[Record]:
    """Read the partitions as `copy` does: each a little further whenever it is asked for."""
    merge: Merge[Record] = Merge(log)
    left = {partition: iter(records) for partition, records in log.items()}
    found = []
    while True:
        while wanted := merge.wanted(ahead):
            for partition in wanted:
                if (item := next(left[partition], None)) is None:
                    merge.read_to_end(partition)
                    continue
                time, record = item
                source, incarnation, seq, _ = record
                merge.add(
                    partition, record, time=time, size=1, source=source, incarnation=incarnation, seq=seq
                )
        if (record_ := merge.next()) is None:
            assert merge.waiting_bytes == 0
            return found
        found.append(record_)


@given(
    skews=st.lists(st.floats(-SKEW_SECONDS, SKEW_SECONDS), min_size=PARTITIONS, max_size=PARTITIONS),
    steps=st.lists(
        st.tuples(
            st.sampled_from("abc"),
            st.sampled_from(["batch", "batch", "batch", "notice", "moves", "restarts"]),
            st.integers(0, PARTITIONS - 1),
            st.floats(0, 2.0),
        ),
        max_size=80,
    ),
)
def test_each_source_has_its_order_however_it_moved(
    skews: list[float], steps: list[tuple[str, str, int, float]]
) -> None:
    log: dict[int, list[tuple[float, Record]]] = {partition: [] for partition in range(PARTITIONS)}
    home: dict[str, int] = defaultdict(int)
    session: dict[str, int] = defaultdict(lambda: 1)
    numbers: dict[str, count[int]] = defaultdict(count)
    written: dict[str, list[Record]] = defaultdict(list)
    now = 100.0
    for order, (source, step, partition, pause) in enumerate(steps):
        now += pause
        if step == "moves":
            # Whoever goes on with a source in another partition begins anew.
            home[source], session[source], numbers[source] = partition, order + 2, count()
        elif step == "restarts":
            session[source], numbers[source] = order + 2, count()
        seq = None if step == "notice" else next(numbers[source])
        record = (source, session[source], seq, order)
        log[home[source]].append((now + skews[home[source]], record))
        written[source].append(record)
    found = merged(log)
    for source, records in written.items():
        assert [record for record in found if record[0] == source] == records
    for records_ in log.values():
        kept = [record for _, record in records_]
        assert [record for record in found if record in kept] == kept


def test_numbers_tell_the_order_where_clocks_tell_another() -> None:
    log = {
        0: [(10.0, ("a", 1, 5, 0)), (10.5, ("a", 1, 6, 1))],
        1: [(9.0, ("b", 1, 0, 2)), (9.0, ("a", 1, 7, 3)), (9.5, ("c", 1, 0, 4))],
        2: [(8.0, ("a", 1, 8, 5))],
    }
    assert [record for record in merged(log) if record[0] == "a"] == [
        ("a", 1, 5, 0),
        ("a", 1, 6, 1),
        ("a", 1, 7, 3),
        ("a", 1, 8, 5),
    ]


def test_clocks_that_contradict_each_other_end_in_the_order_of_time() -> None:
    log = {
        0: [(1.0, ("a", 1, 2, 0)), (2.0, ("b", 1, 1, 1))],
        1: [(1.5, ("b", 1, 2, 2)), (2.5, ("a", 1, 1, 3))],
    }
    assert sorted(merged(log)) == sorted(record for records in log.values() for _, record in records)


def test_what_is_repeated_or_late_stays_where_it_is_in_its_partition() -> None:
    numbers = [1, 2, 1, 2, 3]
    log = {0: [(float(at), ("a", 1, seq, at)) for at, seq in enumerate(numbers)], 1: []}
    assert [record[2] for record in merged(log)] == numbers


def test_without_looking_ahead_a_clock_that_was_set_back_has_nothing_read() -> None:
    merge: Merge[int] = Merge([0, 1])
    for order, (partition, time) in enumerate([(0, 100.0), (0, 40.0), (1, 101.0)]):
        merge.add(partition, order, time=time, size=1, source=partition)
    assert (merge.wanted(10.0), merge.wanted(0.0)) == ({0, 1}, set())
    assert (merge.next(), merge.next(), merge.wanted(0.0)) == (0, 1, {0})
