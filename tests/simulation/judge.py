"""What must be true at rest: the recount of `verify`, and what engines know of themselves."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import datetime, timezone
from typing import Any

from pipeline.kafka.acceptance import accepted_events
from pipeline.kafka.refusal import RecordRefused
from pipeline.verify import times
from pipeline.verify.against_log import Comparison
from pipeline.verify.findings import Findings
from pipeline.verify.progress import Progress
from pipeline.verify.store import StoredTables
from pipeline.worker.exits import ExitCode, exit_code
from schemas.events import EventsRecord, Gap
from tests.simulation.broker import Entry
from tests.simulation.engine import Engine
from tests.simulation.loop import Process
from tests.simulation.play import Play

PATIENCE_SECONDS = 5.0
"""For rows of idle sources that are just carried forward, before the transaction of their figures."""


def differences(play: Play) -> Iterator[str]:
    """Give what is not as it must be, a line each."""
    for supervised in play.all:
        for failure in supervised.failures:
            if not _may_end_a_process(failure):
                yield f"a process ended by {failure!r}"
    findings = _recounted(play)
    for difference in findings.kept:
        yield f"recount: {difference}"
    for engine in play.engines:
        yield from _of_engine(play, engine)


def _may_end_a_process(failure: BaseException) -> bool:
    return exit_code(failure) is ExitCode.RESTART


def _recounted(play: Play) -> Findings:
    simulation = play.simulation
    process = Process(simulation, "verify")
    now = datetime.fromtimestamp(simulation.wall(), timezone.utc)
    done: list[Findings] = []

    async def recount() -> None:
        tables = StoredTables(simulation.settings.clickhouse)
        comparison = Comparison(
            simulation.settings, tables, now, None, Progress(None), figures_since=times.EPOCH
        )
        await comparison.compare_topics(PATIENCE_SECONDS)
        done.append(comparison.findings)

    task: asyncio.Task[Any] = process.create_task(recount())
    simulation.run(simulation.now + 600.0, unless=task.done)
    task.result()
    return done[0]


def _of_engine(play: Play, engine: Engine) -> Iterator[str]:
    """Compare the newest life in the log with the engine's own memory of it."""
    if engine.lied:
        return
    newest, known, lost = 0, dict[int, float](), set[int]()
    lives, removed, late = set[int](), set[int](), set[int]()
    for record, entry, gone in _written(play):
        if record.replica != engine.name:
            continue
        # A connector that starts knows no session that retention took whole, or of which all comes late.
        if not (gone or entry.late):
            lives.add(record.incarnation)
        if record.incarnation < newest:
            continue
        if record.incarnation > newest:
            newest, known, lost, removed, late = record.incarnation, {}, set(), set(), set()
        for batch in record.batches:
            if batch.seq is not None:
                # What retention took no connector that starts can find, nor what came late; both count once.
                unseen = entry.late or batch.seq in removed | late or play.overlapping
                if batch.seq in known and not unseen:
                    yield f"{engine.name}: batch {batch.seq} of {newest} is in the log twice"
                known[batch.seq] = batch.ts
                if entry.late:
                    late.add(batch.seq)
                (removed.add if gone else removed.discard)(batch.seq)
            for event in batch.events:
                if isinstance(event, Gap):
                    lost |= {*range(event.first, event.last + 1)}
    if len(lives) > engine.life + 1 and not play.overlapping:
        yield f"{engine.name}: {len(lives)} incarnations of {engine.life + 1} lives"
    missing = [seq for seq in range(len(engine.published)) if seq not in known and seq not in lost]
    if missing and (known or lost):
        first = min((*known, *lost))
        missing = [seq for seq in missing if seq >= first]
    if missing:
        yield f"{engine.name}: batches {missing[:5]} of the engine's life are neither in the log nor a gap"
    if not lost:
        other = [seq for seq, (at, _) in enumerate(engine.published) if abs(known.get(seq, at) - at) > 1e-6]
        if other:
            yield f"{engine.name}: batches {other[:5]} are not those of the engine's life"
    yield from _occupancy(play, engine)
    if not play.schedule.indexes:
        return
    held = play.followed.held().get(engine.name)
    # What retention took before the index had read it, workers may have.
    any_removed = any(
        log.removed for (topic, _), log in play.simulation.broker.log.items() if ".events." in topic
    )
    if held is None and not any_removed and _trust(play, engine) == "complete":
        yield f"{engine.name}: complete in the tables, and not in the index"
    if held is not None and held != {*engine.resident}:
        wrong = len(held ^ {*engine.resident})
        yield f"{engine.name}: {wrong} blocks of a complete engine are wrong in the index"


def _trust(play: Play, engine: Engine) -> str:
    last = _last_row(play, "stream_health_10s", engine)
    return "" if last is None else last["trust"]


def _last_row(play: Play, table: str, engine: Engine) -> dict[str, Any] | None:
    rows = [row for row in play.simulation.store.rows(table) if row["replica"] == engine.name]
    return max(rows, key=lambda row: (row["version"], row["window"]), default=None)


def _occupancy(play: Play, engine: Engine) -> Iterator[str]:
    last, health = _last_row(play, "occupancy_10s", engine), _last_row(play, "stream_health_10s", engine)
    if last is None or health is None:
        return
    if (last["version"], last["window"]) < (health["version"], health["window"]):
        # A worker wrote it and died before it committed, and retention took what it had read: who came next
        # knows nothing of the medium. Where the records are still there, the recount misses the later rows.
        return
    if last["trust"] == "complete" and last["blocks"] != len(engine.resident):
        yield f"{engine.name}: {last['blocks']} blocks are complete, the engine holds {len(engine.resident)}"


def records(play: Play) -> Iterator[tuple[EventsRecord, bool]]:
    """Yield every record that was in the log, and whether retention took it."""
    yield from ((record, gone) for record, _, gone in _written(play))


def _written(play: Play) -> Iterator[tuple[EventsRecord, Entry, bool]]:
    for (topic, _), log in play.simulation.broker.log.items():
        if ".events." in topic:
            for number, entry in enumerate((*log.removed, *log.entries)):
                try:
                    record = accepted_events(entry.value, entry.headers, entry.key)
                except RecordRefused:
                    continue
                yield record, entry, number < len(log.removed)
