"""Positions that are written now and then, moved by the log behind them, are those of the whole log."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from connectors.order.records import Mention, mention_of
from connectors.positions.ledger import Ledger, advance
from connectors.sources import SourceKey
from schemas.events import Batch, Closed, Gap, Stored
from schemas.positions import PositionRecord
from tests.support.inputs.event_records import batch, notice, record

SOURCES: list[SourceKey] = [("a", 0), ("a", 1), ("b", 0)]
PARTITION_OF = {"a": 3, "b": 5}


def fresh(source: SourceKey) -> PositionRecord:
    return PositionRecord(*source, partition=PARTITION_OF[source[0]], offset=-1)


def recounted(log: dict[int, list[Mention]], source: SourceKey) -> tuple[int, int | None, int, bool]:
    """(incarnation, seq, fingerprint, closed) by looking through everything."""
    ours = [mention for mentions in log.values() for mention in mentions if mention.source == source]
    if not ours:
        return 0, None, 0, False
    incarnation = max(mention.incarnation for mention in ours)
    life = [mention for mention in ours if mention.incarnation == incarnation]
    seq, fingerprint = max(((m.seq, m.fingerprint) for m in life if m.seq is not None), default=(None, 0))
    return incarnation, seq, fingerprint, any(mention.closed for mention in life)


def found(position: PositionRecord) -> tuple[int, int | None, int, bool]:
    return position.incarnation, position.seq, position.fingerprint, position.closed


@st.composite
def steps(draw: st.DrawFn) -> list[tuple[str, Any]]:
    """What happens to a connector: batches acknowledged, foreign records between, positions written."""
    lives = dict.fromkeys(SOURCES, (1, -1, False))
    sent: list[Mention] = []
    happened: list[tuple[str, Any]] = []
    for _ in range(draw(st.integers(1, 40))):
        kind = draw(
            st.sampled_from(["batch", "batch", "batch", "again", "foreign", "write", "fail", "account"])
        )
        if kind == "batch":
            source = draw(st.sampled_from(SOURCES))
            mentions = []
            for _ in range(draw(st.integers(1, 4))):
                incarnation, seq, closed = lives[source]
                if closed:
                    incarnation, seq = incarnation + draw(st.integers(1, 3)), -1
                closed = draw(st.booleans()) and draw(st.booleans())
                only_notices = draw(st.booleans()) and draw(st.booleans())
                seq = seq if only_notices else seq + draw(st.integers(1, 5))
                lives[source] = (incarnation, seq, closed)
                number = None if only_notices else seq
                fingerprint = 0 if number is None else incarnation * 1000 + number
                mentions.append(Mention(source, incarnation, number, fingerprint, closed))
            sent = mentions
            happened.append(("batch", mentions))
        elif kind == "again" and sent:
            happened.append(("batch", sent))
        elif kind in {"foreign", "account"}:
            happened.append((kind, draw(st.sampled_from([3, 5]))))
        elif kind in {"write", "fail"}:
            happened.append((kind, draw(st.booleans())))
    return happened


@given(steps(), st.booleans())
def test_a_successor_knows_exactly_where_each_source_is(
    happened: list[tuple[str, Any]], offsets_known: bool
) -> None:
    ledger = Ledger("me")
    ledger.begin(map(fresh, SOURCES))
    topic = {(p.replica, p.dp_rank): p for p in ledger.take()}
    assert set(topic) == set(SOURCES), "what begins is written at once"
    log: dict[int, list[Mention]] = {3: [], 5: []}
    for kind, what in happened:
        if kind == "batch":
            partition = PARTITION_OF[what[0].source[0]]
            log[partition] += what
            ledger.acknowledged(partition, len(log[partition]) - 1 if offsets_known else -1, what)
        elif kind == "foreign":
            log[what].append(Mention(("foreign", 0), 9, 9, 9, False))
        elif kind == "account":
            ledger.account(what, len(log[what]) - 1)
        else:
            taken = ledger.take(everything=what)
            if kind == "fail":
                ledger.unwritten(taken)
            else:
                topic |= {(p.replica, p.dp_rank): p for p in taken}
                ledger.written(taken)
    # The process is killed here.
    for source in SOURCES:
        position = topic[source]
        mentions = log[position.partition]
        for mention in mentions[position.offset + 1 :]:
            if mention.source == source:
                advance(position, mention)
        assert found(position) == recounted(log, source)


@given(steps())
def test_nothing_is_written_that_was_not_acknowledged_and_nothing_twice(
    happened: list[tuple[str, Any]],
) -> None:
    ledger = Ledger("me")
    ledger.begin(map(fresh, SOURCES))
    ledger.written(ledger.take())
    log: dict[int, list[Mention]] = {3: [], 5: []}
    due: set[SourceKey] = set()
    for kind, what in happened:
        if kind == "batch":
            partition = PARTITION_OF[what[0].source[0]]
            log[partition] += what
            due.add(what[0].source)
            ledger.acknowledged(partition, len(log[partition]) - 1, what)
        elif kind == "write":
            taken = ledger.take()
            assert {(p.replica, p.dp_rank) for p in taken} == due
            for position in taken:
                assert found(position) == recounted(log, (position.replica, position.dp_rank))
                assert position.connector == "me"
            ledger.written(taken)
            due = set()


def test_positions_of_idle_sources_move_with_their_partition() -> None:
    ledger = Ledger("me")
    ledger.begin(map(fresh, SOURCES))
    ledger.written(ledger.take())
    ledger.acknowledged(3, 70, [Mention(("a", 0), 1, 5, 55, False)])
    ledger.acknowledged(3, -1, [Mention(("a", 0), 1, 6, 66, False)])
    assert {(p.replica, p.dp_rank): p.offset for p in ledger.take()} == {("a", 0): 70}
    assert {(p.replica, p.dp_rank): p.offset for p in ledger.take(everything=True)} == {
        ("a", 0): 70,
        ("a", 1): 70,
        ("b", 0): -1,
    }
    ledger.account(3, 60)
    ledger.account(5, 12)
    assert [p.offset for p in ledger.take(everything=True) if p.replica == "b"] == [12]
    assert {p.offset for p in ledger.take(everything=True) if p.replica == "a"} == {70}


def test_taken_positions_do_not_move_any_more() -> None:
    ledger = Ledger("me")
    ledger.begin([fresh(("a", 0))])
    (taken,) = ledger.take()
    before = msgspec.structs.asdict(taken)
    ledger.acknowledged(3, 1, [Mention(("a", 0), 1, 5, 55, False)])
    assert msgspec.structs.asdict(taken) == before


def test_a_removed_source_is_forgotten_when_its_end_is_written() -> None:
    ledger = Ledger("me")
    ledger.begin([fresh(("a", 0)), fresh(("b", 0))])
    ledger.acknowledged(3, 1, [Mention(("a", 0), 1, 5, 55, False)])
    ledger.written(ledger.take())
    ledger.forget(("a", 0))
    ledger.forget(("b", 0))
    ledger.forget(("never", 0))
    taken = ledger.take()
    ledger.written(taken)
    assert ("a", 0) in ledger, "it is not closed yet"
    assert ("b", 0) not in ledger, "it had no life"
    ledger.acknowledged(3, 2, [Mention(("a", 0), 1, None, 0, True)])
    taken = ledger.take()
    assert [found(p) for p in taken] == [(1, 5, 55, True)]
    ledger.unwritten(taken)
    assert ledger.take() == taken
    ledger.written(taken)
    assert ("a", 0) not in ledger
    assert ledger.take(everything=True) == []


def test_a_source_that_comes_back_before_it_was_forgotten_stays() -> None:
    ledger = Ledger("me")
    ledger.begin([fresh(("b", 0))])
    ledger.forget(("b", 0))
    ledger.begin([fresh(("b", 0))])
    ledger.written(ledger.take())
    assert ("b", 0) in ledger


def test_what_a_record_says_of_its_source() -> None:
    def said(*batches: Batch) -> Mention:
        told = record(*batches, life=77, last_fingerprint=9 if batches[0].seq else 0)
        told.dp_rank = 2
        return mention_of(told)

    stored, empty = batch(7, 1.0, Stored(b"12345678", 16)), batch(7, 1.0)
    gap, closed = notice(1.0, Gap(8, 9, "replay_holes")), notice(1.0, Closed("restarted"))
    assert said(stored, gap) == Mention(("r", 2), 77, 7, 9, False)
    assert said(stored, closed) == Mention(("r", 2), 77, 7, 9, True)
    assert said(closed) == Mention(("r", 2), 77, None, 0, True)
    assert said(empty) == Mention(("r", 2), 77, 7, 9, False)


def test_a_position_tells_of_which_life_its_incarnation_is() -> None:
    ledger = Ledger("c")
    ledger.begin(
        [PositionRecord("a", 0, 3, -1), PositionRecord("b", 0, 5, 7, incarnation=4)], {("a", 0): "u1"}
    )
    ledger.acknowledged(3, 1, [Mention(("a", 0), 7, 0, 1, False)])
    assert {(each.replica, each.incarnation, each.life) for each in ledger.take()} == {
        ("a", 7, "u1"),
        ("b", 4, ""),
    }
    # Taken over by somebody who finds the engine in its next life, which then begins.
    ledger.begin([PositionRecord("a", 0, 3, 1, incarnation=7, life="u1")], {("a", 0): "u2"})
    assert [each.life for each in ledger.take()] == ["u1"]
    ledger.acknowledged(3, 2, [Mention(("a", 0), 8, 0, 1, False)])
    assert [each.life for each in ledger.take()] == ["u2"]


def test_an_open_incarnation_of_unknown_life_is_taken_to_be_of_the_present_one() -> None:
    ledger = Ledger("c")
    ledger.begin([PositionRecord("a", 0, 3, 1, incarnation=7)], {("a", 0): "u1"})
    assert [each.life for each in ledger.take()] == ["u1"]
    ledger.begin([PositionRecord("a", 0, 3, 1, incarnation=7, closed=True)], {("a", 0): "u1"})
    assert [each.life for each in ledger.take()] == [""]


def test_the_log_behind_a_position_does_not_tell_lives() -> None:
    position = PositionRecord("a", 0, 3, 1, incarnation=7, life="u1")
    advance(position, Mention(("a", 0), 7, 5, 1, False))
    assert position.life == "u1"
    advance(position, Mention(("a", 0), 8, 0, 1, False))
    assert position.life == ""


def test_a_forgotten_source_is_ending_until_its_end_is_acknowledged() -> None:
    ledger = Ledger("c")
    ledger.begin([PositionRecord("a", 0, 3, -1), PositionRecord("b", 0, 5, -1)])
    ledger.acknowledged(3, 1, [Mention(("a", 0), 7, 0, 1, False)])
    assert not ledger.ending([("a", 0), ("b", 0)])
    ledger.forget(("a", 0))
    ledger.forget(("b", 0))
    assert ledger.ending([("a", 0)])
    assert not ledger.ending([("b", 0), ("c", 0)])
    ledger.acknowledged(3, 2, [Mention(("a", 0), 7, None, 0, True)])
    assert not ledger.ending([("a", 0)])


def test_a_source_that_another_connector_has_overtaken_goes_on_there() -> None:
    ledger = Ledger("c")
    ledger.begin([PositionRecord("a", 0, 3, 1, incarnation=7, seq=90)], {("a", 0): "u1"})
    assert ledger.overtaken(PositionRecord("a", 0, 3, 5, incarnation=8, seq=4, fingerprint=44))
    assert not ledger.overtaken(PositionRecord("a", 0, 3, 6, incarnation=8, seq=5)), (
        "that is the same session"
    )
    assert not ledger.overtaken(PositionRecord("b", 0, 3, 6, incarnation=8, seq=5)), "not ours"
    ledger.acknowledged(3, 7, [Mention(("a", 0), 7, 91, 1, False)])
    [taken] = ledger.take()
    assert (taken.incarnation, taken.seq, taken.fingerprint, taken.offset) == (8, 4, 44, 7)
    assert (taken.life, taken.connector) == ("u1", "c")
    ledger.acknowledged(3, 8, [Mention(("a", 0), 8, 6, 66, False)])
    assert [(each.seq, each.fingerprint) for each in ledger.take()] == [(6, 66)]


def test_a_source_that_was_overtaken_is_forgotten_as_any_other() -> None:
    ledger = Ledger("c")
    ledger.begin([PositionRecord("a", 0, 3, 1, incarnation=7)])
    assert ledger.overtaken(PositionRecord("a", 0, 3, 5, incarnation=8, seq=4, closed=True))
    ledger.forget(("a", 0))
    ledger.written(ledger.take())
    assert ("a", 0) not in ledger
