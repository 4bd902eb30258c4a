"""Schedules that showed a fault of the judge or the product once, each as small as it could be made.

Seeds mean others when the generator changes; these do not. Each tells whether that happened which it is
about, so that it is seen when it no longer does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

from pipeline.verify.figures import decode_figure
from schemas.events import Gap
from schemas.rows import FlowRow
from tests.simulation.judge import records
from tests.simulation.loop import BEGINNING
from tests.simulation.play import Play
from tests.simulation.run import Runner
from tests.simulation.schedule import Action, Schedule
from tests.simulation.supervised import LONGEST_AWAY


class Kept(NamedTuple):
    """A schedule, and what tells whether that happened which it is about."""

    schedule: Schedule
    happened: Callable[[Play], bool]


_ONE = Schedule(
    seed=1,
    engines=1,
    partitions=1,
    shards=1,
    connectors=1,
    workers=1,
    indexes=0,
    receivers=0,
    capacity=40,
    keeps=1000,
    prompts=4,
    checkpoint_seconds=2.0,
    carry_seconds=600.0,
    linger_seconds=0.8,
    seconds=6.0,
    actions=(),
)


def _row_is_left(play: Play) -> bool:
    """The occupancy is of a round that nobody committed, and what the engine stored then is gone."""
    [occupancy] = play.simulation.store.rows("occupancy_10s")
    health = max(row["version"] for row in play.simulation.store.rows("stream_health_10s"))
    [engine] = play.engines
    behind = occupancy["version"] < health and occupancy["blocks"] < len(engine.resident)
    return occupancy["trust"] == "complete" and behind


def _figure_is_left_out(play: Play) -> bool:
    """The log has the last record of a row, and not the first of its window; no figure says the row."""
    [events, figures] = [
        next(log for (topic, _), log in play.simulation.broker.log.items() if name in topic)
        for name in (".events.", ".figures.")
    ]
    said = [
        decode_figure(entry.value, (), None)
        for entry in figures.entries
        if not (entry.marker or entry.aborted)
    ]
    rows = play.simulation.store.rows("flow_10s")
    left = {(row["replica"], row["version"]) for row in rows} - {
        (row.replica, row.version) for row in said if isinstance(row, FlowRow)
    }
    return any(version >= len(events.removed) > 0 for _, version in left)


def _end_is_found(play: Play) -> bool:
    """The connector took a batch for want of an answer, and was answered later, with the last batch."""
    log = [batch for record, _ in records(play) for batch in record.batches if batch.seq is not None]
    return [(batch.seq, batch.replayed) for batch in log] == [(0, False), (1, False), (2, True)]


def _went_on_with_the_earlier(play: Play) -> bool:
    """Two connectors published the engine's first batch, and the one that was killed in the later session."""
    first = [record for record, _ in records(play) if 0 in [batch.seq for batch in record.batches]]
    begun = [record.incarnation for record in first if record.replica == "r0"]
    return len(begun) == 2 and begun[0] < begun[1] and play.connectors[0].starts == 2


def _spoke_once_in_a_later(play: Play) -> bool:
    """A connector that woke up began a later session, and ended; the other one goes on there."""
    incarnations = [record.incarnation for record, _ in records(play)]
    return incarnations[0] < incarnations[3] == incarnations[-1] and play.connectors[0].starts == 2


def _came_late(play: Play) -> bool:
    """What a killed connector had published came when its successor had looked, and begun another session."""
    [log] = [log for (topic, _), log in play.simulation.broker.log.items() if ".events." in topic]
    sessions = [record.incarnation for record, _ in records(play) if record.replica == "r1"]
    return log.entries[0].late and sessions[0] < sessions[1] == sessions[-1]


def _was_waited_for(play: Play) -> bool:
    """The connector still stopped when all faults had ended, so that engines said their last much later."""
    [(at, _)] = play.engines[1].published
    return at > BEGINNING + play.schedule.seconds + LONGEST_AWAY and play.connectors[0].starts == 2


def _was_left_out(play: Play) -> bool:
    """A message of the life before lay in a slow socket while the engine came back, its clock set back."""
    [engine] = play.engines
    batches = [batch for record, _ in records(play) for batch in record.batches if batch.seq is not None]
    return (
        engine.clock_ahead < 0 and engine.life == 1 and (batches[-1].seq, batches[-1].replayed) == (0, True)
    )


def _came_too_late(play: Play) -> bool:
    """What an answer did not reach back to came live when it was given up, and nobody answered any more."""
    [gap] = [
        event
        for record, _ in records(play)
        for batch in record.batches
        for event in batch.events
        if isinstance(event, Gap)
    ]
    return (gap.first, gap.last, gap.reason) == (1, 4, "replay_truncated") and play.engines[0].life == 2


def _what_is_left_counts(play: Play) -> bool:
    """The log lost a record before the first base was whole, and has the next one, committed as well."""
    log = play.simulation.broker.log["kvlens.events.v1", 0]
    last = max(play.simulation.store.rows("sources"), key=lambda row: row["incarnation"])
    return log.begin == 1 and (last["first_seq"], last["last_seq"], last["trust"]) == (0, 13, "complete")


KEPT = {
    "rows that nobody committed, of records that retention took": Kept(
        replace(
            _ONE,
            actions=(
                Action(0.1, "serve", 0, 1),
                Action(0.5, "inserted", 1, 98),
                Action(1.6, "serve", 0, 2),
                Action(2.8, "retain", 0, 1),
            ),
        ),
        _row_is_left,
    ),
    "a worker killed before its first base was whole, and a log that lost its first record": Kept(
        replace(
            _ONE,
            seed=553843403,
            partitions=2,
            indexes=1,
            capacity=12,
            prompts=2,
            checkpoint_seconds=5.0,
            linger_seconds=1.6,
            seconds=10.849,
            actions=(
                Action(2.214, "serve", 5, 270324),
                Action(2.441, "again", 3, 531367),
                Action(5.851, "retain", 5, 740056),
                Action(7.422, "kill", 1, 144330),
            ),
        ),
        _what_is_left_counts,
    ),
    "rows that nobody committed, of a window of which retention took some records": Kept(
        replace(
            _ONE,
            seed=9054,
            engines=3,
            connectors=2,
            workers=2,
            receivers=1,
            capacity=4,
            prompts=12,
            checkpoint_seconds=5.0,
            linger_seconds=1.6,
            seconds=10.234,
            actions=(
                Action(0.045, "kill", 2, 750612),
                Action(0.105, "kill", 3, 806922),
                Action(0.545, "bite", 1, 588976),
                Action(1.053, "serve", 5, 928467),
                Action(2.291, "serve", 5, 518778),
                Action(7.234, "retain", 0, 876407),
            ),
        ),
        _figure_is_left_out,
    ),
    "a last batch that was lost when the engine had not answered three times": Kept(
        replace(
            _ONE,
            seed=2,
            seconds=10.0,
            actions=(
                Action(0.5, "serve", 0, 1),
                Action(1.5, "deaf", 0, 6),
                Action(1.6, "kill", 0, 1),
                Action(6.0, "serve", 0, 2),
                Action(9.8, "drop", 0, 1),
                Action(9.9, "serve", 0, 3),
            ),
        ),
        _end_is_found,
    ),
    "a connector killed before its first position, beside one that began after it": Kept(
        replace(
            _ONE,
            seed=627075032,
            engines=3,
            capacity=12,
            keeps=3,
            checkpoint_seconds=5.0,
            seconds=4.877,
            actions=(
                Action(0.096, "overlap", 0, 854551),
                Action(0.107, "join", 2, 489064),
                Action(0.619, "appended", 4, 570326),
                Action(0.669, "serve", 0, 165731),
                Action(0.819, "serve", 5, 103289),
                Action(1.719, "serve", 0, 137095),
            ),
        ),
        _went_on_with_the_earlier,
    ),
    "a connector frozen for long, which spoke once and ended, beside one killed meanwhile": Kept(
        replace(
            _ONE,
            seed=436868663,
            indexes=1,
            capacity=12,
            prompts=2,
            checkpoint_seconds=3.0,
            carry_seconds=10.0,
            linger_seconds=1.6,
            seconds=12.731,
            actions=(
                Action(0.188, "overlap", 4, 528900),
                Action(0.507, "down", 4, 680171),
                Action(2.432, "freeze", 1, 449128),
                Action(9.731, "join", 0, 744193),
                Action(10.224, "stop", 5, 632616),
            ),
        ),
        _spoke_once_in_a_later,
    ),
    "first records of a connector that was killed, which come when its successor has looked": Kept(
        replace(
            _ONE,
            seed=7310777,
            engines=2,
            shards=2,
            workers=2,
            capacity=12,
            prompts=2,
            checkpoint_seconds=5.0,
            carry_seconds=10.0,
            linger_seconds=1.6,
            seconds=8.0,
            actions=(
                Action(0.019, "kill", 3, 557769),
                Action(0.231, "serve", 3, 210643),
                Action(0.322, "lie", 2, 149983),
                Action(1.127, "serve", 5, 543894),
                Action(1.405, "slow", 5, 469810),
                Action(1.646, "clear", 4, 381476),
            ),
        ),
        _came_late,
    ),
    "a connector that stops for long when all is to come to rest": Kept(
        replace(
            _ONE,
            seed=7311254,
            engines=3,
            partitions=2,
            keeps=3,
            prompts=12,
            carry_seconds=10.0,
            linger_seconds=1.6,
            seconds=5.0,
            actions=(
                Action(1.844, "serve", 3, 287152),
                Action(2.532, "slow", 5, 667276),
                Action(2.889, "stop", 2, 584191),
            ),
        ),
        _was_waited_for,
    ),
    "a message of the life before, behind the replayed beginning of the next, its clock set back": Kept(
        replace(
            _ONE,
            seed=640979022,
            shards=2,
            capacity=4,
            keeps=3,
            checkpoint_seconds=5.0,
            carry_seconds=10.0,
            seconds=3.0,
            actions=(
                Action(0.075, "serve", 4, 427031),
                Action(0.119, "serve", 2, 497522),
                Action(0.616, "drop", 5, 73429),
                Action(0.735, "serve", 3, 402731),
                Action(0.749, "slow", 1, 396545),
                Action(1.157, "serve", 2, 875290),
                Action(1.348, "serve", 1, 218661),
                Action(1.552, "serve", 1, 74059),
                Action(1.596, "serve", 2, 59714),
                Action(1.796, "restart", 3, 60483),
            ),
        ),
        _was_left_out,
    ),
    "messages out of a slow socket, given up before, of an engine that is gone": Kept(
        replace(
            _ONE,
            seed=880320,
            engines=2,
            partitions=2,
            indexes=1,
            receivers=1,
            keeps=3,
            prompts=12,
            seconds=10.237,
            actions=(
                Action(3.944, "serve", 3, 644450),
                Action(4.035, "serve", 1, 442020),
                Action(4.057, "serve", 4, 460443),
                Action(4.184, "serve", 4, 667735),
                Action(4.766, "serve", 0, 674239),
                Action(4.92, "again", 0, 679039),
                Action(4.972, "down", 0, 401466),
            ),
        ),
        _came_too_late,
    ),
}


def failed(run: Runner) -> Iterator[str]:
    """Give the schedules that differ, or are no longer about what they are about, a line each."""
    for name, kept in KEPT.items():
        play, differences = run.played(kept.schedule)
        if not differences and not kept.happened(play):
            differences = ["what it is about did not happen"]
        yield from (f"{name}: {difference}" for difference in differences)
