"""The recount bounds times by the log as the replica agent does; each has its own code."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from pipeline.reading.windows import bounded_by_log
from pipeline.verify.times import believe_the_log
from schemas.events import Batch, EventsRecord, SourceStatus, Stored
from schemas.settings import Worker
from tests.support.inputs.event_records import record

WRITTEN_AT = 1_700_000_000.0
AHEAD = 5.0

moments = st.one_of(
    st.sampled_from([0.0, WRITTEN_AT, WRITTEN_AT + AHEAD, 3_786_912_000.0]),
    st.floats(WRITTEN_AT - 10, WRITTEN_AT + 10),
)
batches = st.lists(st.tuples(st.booleans(), moments, moments), max_size=4)


def record_of(said: list[tuple[bool, float, float]]) -> EventsRecord:
    status, stored = SourceStatus(connected=True), Stored(bytes(8), 16)
    return record(
        *(
            Batch(None if is_notice else seq, ts, received_at, [status if is_notice else stored])
            for seq, (is_notice, ts, received_at) in enumerate(said)
        )
    )


@given(batches, st.sampled_from([WRITTEN_AT, 0.0, -0.001]))
def test_both_sides_keep_one_rule(said: list[tuple[bool, float, float]], written_at: float) -> None:
    applied, recounted = record_of(said), record_of(said)
    bounded_by_log(applied, written_at, ahead=AHEAD)
    believe_the_log(recounted, written_at, Worker(max_clock_ahead_seconds=AHEAD))
    assert msgspec.msgpack.encode(applied) == msgspec.msgpack.encode(recounted)
    for (is_notice, ts, received_at), batch in zip(said, applied.batches, strict=True):
        late = written_at > 0 and received_at > written_at + AHEAD
        assert batch.received_at == (written_at if late else received_at)
        # The time of an engine is compared with the time of receipt, elsewhere.
        assert batch.ts == (written_at if is_notice and 0 < written_at < ts - AHEAD else ts)
