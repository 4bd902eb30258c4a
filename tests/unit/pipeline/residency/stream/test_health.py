"""What stream_health_10s and sources say of gaps, replays, restarts, silence and trust, by the log alone."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone

from pipeline.verify.keys import key_of
from schemas.events import (
    Batch,
    Cleared,
    Closed,
    EngineCounters,
    Event,
    Gap,
    Opened,
    Removed,
    SourceStatus,
    Stored,
    Undecodable,
)
from schemas.rows import FlowRow, OccupancyRow, Row, SourceRow, StreamHealthRow
from schemas.settings import Worker
from tests.support.inputs import event_records
from tests.support.inputs.event_records import batch, record
from tests.support.inputs.packed import packed
from tests.support.replica_agent import ReplicaAgent

START = 1_800_000_000.0
"""The beginning of a window."""
SETTINGS = Worker(idle_carry_seconds=0.001)
"""The wall clock carries nothing here."""


def live(seq: int, at: float, *events: Event) -> Batch:
    return batch(seq, START + at, *events)


def replayed(seq: int, at: float, came: float, *events: Event) -> Batch:
    return batch(seq, START + at, *events, received_at=START + came, replayed=True)


def notice(at: float, event: Event) -> Batch:
    return event_records.notice(START + at, event)


class Log:
    """A partition of one source; every record is cut, so that each row is written as often as it can be."""

    def __init__(self, *, cuts: bool = True) -> None:
        self.agent = ReplicaAgent(SETTINGS)
        self.table: dict[tuple, Row] = {}
        self.cuts = cuts

    def add(self, *batches: Batch, life: int = 1, duplicates: int = 0) -> None:
        self.agent.apply(record(*batches, life=life, duplicates=duplicates))
        if self.cuts:
            self.cut()

    def cut(self) -> None:
        for _ in range(2):
            for row in self.agent.state.cut(START).rows:
                known = self.table.setdefault(key_of(row), row)
                if known.version <= row.version:
                    self.table[key_of(row)] = row

    def health(self, *columns: str) -> dict[float, tuple]:
        """Seconds after START of each window to the columns of its row."""
        return {
            seconds(row.window): tuple(value(getattr(row, column)) for column in columns)
            for row in sorted(self.rows(StreamHealthRow), key=lambda row: row.window)
        }

    def blocks(self) -> dict[float, int]:
        return {seconds(row.window): row.blocks for row in self.rows(OccupancyRow)}

    def sources(self) -> list[tuple]:
        return [
            (row.incarnation, row.first_seq, row.last_seq, value(row.closed_at), row.closed_reason)
            for row in sorted(self.rows(SourceRow), key=lambda row: row.incarnation)
        ]

    def rows(self, kind: type) -> list:
        self.cut()
        return [row for row in self.table.values() if isinstance(row, kind)]


def seconds(at: datetime) -> float:
    return round(at.replace(tzinfo=timezone.utc).timestamp() - START, 3)


def value(shown: object) -> object:
    return seconds(shown) if isinstance(shown, datetime) else shown


def logs() -> Sequence[Log]:
    """The same log, cut after each record and at its end only, must give the same rows."""
    return Log(), Log(cuts=False)


COUNTS = ("batches", "gap_batches", "replayed_batches", "lost_batches", "last_seq")


def test_a_replay_before_first_contact_is_history_and_one_after_it_fills_a_gap() -> None:
    for log in logs():
        log.add(notice(30, Opened(0, complete=True)), replayed(0, 1, 30), replayed(1, 12, 30), live(2, 31))
        log.add(replayed(3, 32, 36), replayed(4, 33, 36), notice(36, Gap(5, 6, "replay_holes")), live(7, 37))
        assert log.health(*COUNTS) == {
            0: (1, 0, 1, 0, 0),
            10: (1, 0, 1, 0, 1),
            20: (0, 0, 0, 0, 1),
            30: (4, 4, 2, 2, 7),
        }


def test_a_doubt_degrades_and_nothing_is_lost() -> None:
    for log in logs():
        log.add(
            notice(30, Opened(0, complete=True)), live(0, 30, Stored(packed(1), 16)), live(1, 31), live(2, 32)
        )
        log.add(live(3, 40), notice(45, Gap(3, 3, "unconfirmed")), live(4, 46))
        assert log.health("trust", "trust_since", "lost_batches")[40] == ("degraded", 40, 0)
        log.add(live(5, 51, Cleared()), notice(52, Gap(3, 3, "unconfirmed")))
        assert log.health("trust", "lost_batches")[50] == ("degraded", 0), "a row has the worst of its window"
        log.add(live(6, 61))
        assert log.health("trust", "lost_batches")[60] == ("complete", 0), (
            "a notice that came again says nothing"
        )


def test_trust_is_since_what_it_rests_on() -> None:
    for log in logs():
        log.add(notice(30, Opened(0, complete=True)), replayed(0, 1, 30, Stored(packed(1), 16)), live(1, 31))
        assert log.health("trust", "trust_since")[30] == ("complete", 1)
        log.add(notice(45, Gap(2, 2, "replay_truncated")), live(3, 46))
        assert log.health("trust", "trust_since")[30] == ("degraded", 31), "since the last batch before it"
        log.add(live(4, 52, Stored(packed(2), 16, medium="cpu"), Cleared()))
        assert log.health("trust", "trust_since")[50] == ("degraded", 31), "that of the other medium"
        media = {
            row.medium: (row.trust, value(row.trust_since))
            for row in log.rows(OccupancyRow)
            if seconds(row.window) == 50
        }
        assert media == {"gpu": ("complete", 52), "cpu": ("degraded", 31)}
        log.add(live(5, 61, Undecodable("nil_hash", 5)))
        assert log.health("trust", "trust_since")[60] == ("degraded", 31)
        flows = {(row.medium, seconds(row.window)): row.trust for row in log.rows(FlowRow)}
        assert flows[("gpu", 50)] == "degraded", "what came before the clear in this window counts, too"


def test_a_restart_clears_counts_once_and_is_complete_again_when_seen_from_its_beginning() -> None:
    for log in logs():
        log.add(notice(0, Opened(5, complete=False)), live(5, 1, Stored(packed(1, 2), 16)))
        assert log.health("trust", "trust_since", "restarts")[0] == ("partial", 0, 0)
        log.add(notice(12, Closed("restarted")), life=1)
        log.add(notice(12, Closed("restarted")), life=1)
        log.add(notice(12, Opened(0, complete=True)), live(0, 12), life=2)
        assert log.health("trust", "trust_since", "restarts", "incarnation", "last_seq") == {
            0: ("partial", 0, 1, 2, -1),
            10: ("complete", 12, 0, 2, 0),
        }
        assert log.sources() == [(1, 5, 5, 12, "restarted"), (2, 0, 0, None, "")]
        cleared = {seconds(row.window): row.cleared_blocks for row in log.rows(FlowRow)}
        assert cleared == {0: 2}
        assert log.blocks() == {0: 0, 10: 0}


def test_a_life_that_another_replaces_without_a_word_is_superseded_and_no_restart() -> None:
    for log in logs():
        log.add(notice(0, Opened(0, complete=True)), live(0, 3))
        log.add(notice(20, Opened(0, complete=True)), live(0, 20), life=2)
        assert log.sources() == [(1, 0, 0, 3, "superseded"), (2, 0, 0, None, "")]
        assert sum(restarts for (restarts,) in log.health("restarts").values()) == 0


def test_duplicates_of_connector_and_agent_add_up() -> None:
    for log in logs():
        log.add(notice(0, Opened(0, complete=True)), live(0, 1), live(1, 2))
        log.add(live(1, 2), live(2, 3), duplicates=4)
        log.add(live(0, 4), life=0)
        assert log.health("batches", "duplicate_batches") == {0: (3, 6)}


def test_an_idle_engine_keeps_its_figures_and_its_windows_move_on() -> None:
    for log in logs():
        log.add(notice(0, Opened(0, complete=True)), live(0, 1, Stored(packed(1, 2), 16)))
        log.add(notice(12, SourceStatus(connected=True)))
        log.add(notice(22, SourceStatus(connected=True)))
        log.add(notice(43, SourceStatus(connected=True)))
        assert log.health("connected", "last_batch_at", "batches") == {
            0: (True, 1, 1),
            **dict.fromkeys((10, 20, 30, 40), (True, 1, 0)),
        }
        assert log.blocks() == dict.fromkeys((0, 10, 20, 30, 40), 2)
        log.add(live(1, 44))
        assert log.health("batches", "last_batch_at")[40] == (1, 44)


def test_the_word_of_a_connector_counts_by_the_clock_of_the_engine() -> None:
    for log in logs():
        hour = 3600.0
        log.add(notice(hour, Opened(0, complete=True)), batch(0, START + 1, received_at=START + hour))
        log.add(notice(hour + 12, SourceStatus(connected=True)))
        assert sorted(log.health("batches")) == [0, 10]


def test_windows_without_contact_show_it_and_take_what_a_replay_brings_later() -> None:
    for log in logs():
        log.add(notice(0, Opened(0, complete=True)), live(0, 1, Stored(packed(1), 16)))
        for at in (12, 22, 32, 42):
            log.add(notice(at, SourceStatus(connected=False)))
        assert log.health("connected", "last_batch_at") == {
            0: (True, 1),
            **dict.fromkeys((10, 20, 30, 40), (False, 1)),
        }
        assert log.blocks() == dict.fromkeys((0, 10, 20, 30, 40), 1)
        log.add(replayed(1, 15, 45, Stored(packed(2), 16)), replayed(2, 34, 45, Stored(packed(3), 16)))
        log.add(live(3, 46))
        assert log.health("connected", "last_batch_at", "batches", "gap_batches", "last_seq") == {
            0: (True, 1, 1, 0, 0),
            10: (False, 15, 1, 1, 1),
            20: (False, 15, 0, 0, 1),
            30: (False, 34, 1, 1, 2),
            40: (True, 46, 1, 0, 3),
        }
        assert log.blocks() == {0: 1, 10: 2, 20: 2, 30: 3, 40: 3}


def test_reports_by_a_clock_that_was_ahead_keep_their_windows_after_it_is_set_right() -> None:
    for log in logs():
        log.add(notice(0, Opened(0, complete=True)), live(0, 1, Stored(packed(1), 16)))
        for at in (12, 62, 22):
            log.add(notice(at, SourceStatus(connected=False)))
        assert log.health("connected") == {0: (True,), **dict.fromkeys(range(10, 70, 10), (False,))}
        assert log.blocks() == dict.fromkeys(range(0, 70, 10), 1)


def test_contact_that_comes_back_without_a_batch_is_shown_from_then_on() -> None:
    for log in logs():
        log.add(notice(0, Opened(0, complete=True)), live(0, 1))
        log.add(notice(12, SourceStatus(connected=False)))
        log.add(notice(33, SourceStatus(connected=True)))
        assert log.health("connected") == {0: (True,), 10: (False,), 20: (False,), 30: (True,)}


def test_a_silent_source_leaves_the_fleet_in_the_window_in_which_that_was_found() -> None:
    for log in logs():
        log.add(notice(0, Opened(0, complete=True)), live(0, 1, Stored(packed(1, 2), 16)))
        for at in (12, 22):
            log.add(notice(at, SourceStatus(connected=False)))
        log.add(notice(31, Closed("silent")))
        assert log.blocks() == {0: 2, 10: 2, 20: 2, 30: 0}
        assert log.health("connected") == {0: (True,), 10: (False,), 20: (False,), 30: (False,)}
        flows = {
            seconds(row.window): (row.cleared_blocks, row.evicted_blocks, row.removed_blocks)
            for row in log.rows(FlowRow)
        }
        assert flows == {0: (0, 0, 0), 30: (2, 0, 0)}
        assert log.sources() == [(1, 0, 0, 31, "silent")]
        # The connector goes on looking for it: that is no life of an engine yet.
        for at in (41, 51):
            log.add(notice(at, SourceStatus(connected=False)), life=2)
        assert log.health("connected", "incarnation", "trust")[50] == (False, 2, "partial")
        assert log.blocks()[50] == 0
        assert [life for life, *_ in log.sources()] == [1]
        log.add(notice(63, Opened(0, complete=True)), live(0, 63, Stored(packed(1), 16)), life=2)
        assert log.health("connected", "restarts", "trust")[60] == (True, 0, "complete")
        assert log.blocks()[60] == 1
        assert log.sources() == [(1, 0, 0, 31, "silent"), (2, 0, 0, None, "")]


def test_a_removed_source_leaves_at_once_and_has_no_rows_afterwards() -> None:
    for log in logs():
        log.add(notice(0, Opened(0, complete=True)), live(0, 1, Stored(packed(1), 16)))
        log.add(notice(4, Closed("removed")))
        assert log.blocks() == {0: 0}
        assert log.health("connected") == {0: (False,)}
        assert log.sources() == [(1, 0, 0, 4, "removed")]
        assert log.rows(StreamHealthRow) == log.rows(StreamHealthRow)
        assert [row.cleared_blocks for row in log.rows(FlowRow)] == [1]


def test_a_source_that_was_never_reached_is_shown_and_its_history_comes_into_its_own_windows() -> None:
    for log in logs():
        for at in (110, 120, 141):
            log.add(notice(at, SourceStatus(connected=False)))
        assert log.health("connected", "batches", "last_batch_at", "last_seq", "trust") == dict.fromkeys(
            (110, 120, 130, 140), (False, 0, None, -1, "partial")
        )
        assert log.sources() == []
        assert log.rows(OccupancyRow) == []
        log.add(notice(150, Opened(0, complete=True)), replayed(0, 95, 150), replayed(1, 125, 150))
        log.add(live(2, 151))
        assert {at: row for at, row in log.health("connected", "batches").items() if row[1]} == {
            90: (True, 1),
            120: (False, 1),
            150: (True, 1),
        }
        assert log.sources() == [(1, 0, 2, None, "")]


def test_what_nobody_understands_shows_when_the_connector_speaks_of_the_source() -> None:
    for log in logs():
        log.add(notice(1, Undecodable("frame_count")), notice(2, Undecodable("bad_seq", count=3)))
        log.add(notice(11, SourceStatus(connected=True)))
        assert log.health("undecodable_events", "trust", "connected") == {10: (4, "degraded", True)}


def test_words_that_change_nothing_write_no_row_again() -> None:
    log = Log()
    counters = EngineCounters(capacity_blocks=100, block_size=16)
    log.add(notice(0, Opened(0, complete=True)), live(0, 1, Stored(packed(1), 16)))
    log.add(notice(2, counters), notice(11, SourceStatus(connected=False)))
    versions = {row.window: row.version for row in log.rows(StreamHealthRow)}
    log.add(notice(21, counters), notice(22, SourceStatus(connected=False)))
    again = {row.window: row.version for row in log.rows(StreamHealthRow)}
    assert versions.items() <= again.items()
    assert len(again) == len(versions) + 1


def test_a_removal_after_a_late_start_is_unknown_and_leaves_no_negative_count() -> None:
    for log in logs():
        log.add(live(7, 1, Removed(packed(1, 2)), Stored(packed(1), 16)))
        assert log.sources() == [(1, 7, 7, None, "")], "the record with `opened` is no longer in the log"
        assert log.health("trust", "lost_batches")[0] == ("partial", 0)
        assert [(row.unknown_removed_blocks, row.stored_blocks) for row in log.rows(FlowRow)] == [(2, 1)]
