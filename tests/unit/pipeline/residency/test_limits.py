"""One engine that lies costs the sources beside it nothing: their rows stay, and its own share is bounded."""

from __future__ import annotations

import statistics
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from pipeline.errors import CheckpointCorrupt
from pipeline.kafka.refusal import SourceName
from pipeline.residency import limits
from pipeline.residency.checkpoint import bases
from pipeline.residency.cut import Cut
from schemas.checkpoints import BASE, SourceBase, part_slot, slot_key
from schemas.events import Event, EventsRecord, Removed, Stored
from schemas.rows import OccupancyRow, Row
from schemas.settings import Worker
from tests.support.inputs.event_records import sent
from tests.support.inputs.lying_engines import KINDS, lies
from tests.support.inputs.packed import packed
from tests.support.replica_agent import ReplicaAgent, changes_of, rows_of, sources_of
from tests.support.suite.night import at_night

START = 1_800_000_000.0
HONEST = ("a", "b")
SETTINGS = Worker(max_pool_sizes=40, max_blocks=100_000, max_itemised_blocks=10_000)
MOST_RECORD_BYTES = 8 << 20
LIMITED = {
    "block_sizes": {"too_many_sizes"},
    "block_sizes_several": {"too_many_sizes"},
    "groups": {"too_many_sizes"},
    "groups_removed": {"too_many_sizes"},
    "media": {"too_many_sizes"},
    "early_stores": {"too_many_blocks"},
    "mixed_sizes": {"too_many_itemised"},
    "endless_blocks": {"too_many_blocks"},
    "cleared": {"too_many_blocks"},
    "unpaired": {"too_many_itemised"},
}
"""What each kind meets, if anything is left out."""


def honest_events(replica: str, seq: int) -> list[Event]:
    """Chains of four blocks that come, and leave 20 batches later."""

    def chain(number: int) -> bytes:
        return packed(*(ord(replica) << 32 | number * 4 + i for i in range(1, 5)))

    gone = [Removed(chain(seq - 20))] if seq >= 20 else []
    return [*gone, Stored(chain(seq), 16, tokens=64)]


def log(kind: str) -> list[EventsRecord]:
    """Two honest sources and one that lies, in turns, a tenth of a second apart."""
    records = []
    for seq, lie in enumerate(lies(kind)):
        at = START + seq / 10
        records += [sent(seq, at, *honest_events(replica, seq), replica=replica) for replica in HONEST]
        records.append(sent(seq, at, *lie, replica="liar"))
    return records


@dataclass
class Run:
    """What a worker writes of a log, one cut every 30 records."""

    rows: dict[Any, Row] = field(default_factory=dict)
    liars_rows: list[int] = field(default_factory=list)
    """Of each cut."""
    largest: int = 0
    """Bytes of the largest record."""
    heads: list[int] = field(default_factory=list)
    """Bytes of the liar's head at each cut."""
    changes: Counter[str] = field(default_factory=Counter)
    """Changes of residency, by replica."""
    agent: ReplicaAgent = field(default_factory=lambda: ReplicaAgent(SETTINGS, shards=4))


def worked(records: list[EventsRecord], *, without: str = "", restored: bool = False) -> Run:
    run = Run()
    for offset, one in enumerate(records):
        if one.replica == without:
            run.agent.log.append(one)  # the others keep their offsets
        else:
            run.agent.apply(one)
        if offset % 30 == 29 or one is records[-1]:
            look = run.agent.moved if restored else run.agent.cut
            take(run, look(one.batches[-1].received_at))
    return run


def take(run: Run, cut: Cut) -> None:
    of_liar = [row for row in cut.rows if row.replica == "liar"]
    run.liars_rows.append(len(of_liar))
    for row in cut.rows:
        if row.replica != "liar":
            run.rows[row.TABLE, str(row.replica), row.window if hasattr(row, "window") else 0] = row
    values = [*(value for *_, value in cut.residency), *(value for _, value in cut.checkpoints)]
    run.largest = max(run.largest, *(len(value or b"") for value in values))
    liar = run.agent.state.sources.get(("liar", 0))
    run.heads.append(len(msgspec.msgpack.encode(liar.head)) if liar is not None else 0)
    for source in sources_of(cut):
        run.changes[source.replica] += sum(len(part.kinds) for part in source.changes)


@pytest.mark.parametrize("kind", KINDS)
def test_honest_sources_are_as_without_the_liar_whose_share_is_bounded(kind: str) -> None:
    records = log(kind)
    alone, beside = worked(records, without="liar"), worked(records)
    assert alone.rows
    assert beside.rows == alone.rows
    assert {r: n for r, n in beside.changes.items() if r in HONEST} == alone.changes
    assert beside.largest <= MOST_RECORD_BYTES / 2
    sizes = SETTINGS.max_pool_sizes
    windows = 2  # a cut may close one, and writes the open one
    assert max(beside.liars_rows) <= windows * (2 * sizes + 1) + 1
    assert max(beside.heads) <= 600_000
    state, liar = beside.agent.state, beside.agent.source("liar")
    left_out = dict(state.take_left_out())
    assert left_out.keys() <= {("liar", 0)}
    assert {*left_out.get(SourceName("liar", 0), ())} == LIMITED.get(kind, set())
    assert state.troubles()["limited"] == (kind in LIMITED)
    assert not state.take_left_out()
    degraded = kind in LIMITED and kind != "cleared"  # what is empty is known again
    assert liar.overall_trust().trust == ("degraded" if degraded else "complete")
    for replica in HONEST:
        assert beside.agent.source(replica).overall_trust().trust == "complete"


@pytest.mark.parametrize(
    "kind", ["block_sizes", "groups", "adapters", *at_night(["mixed_sizes", "unpaired"])]
)
def test_limits_are_the_same_after_every_restart(kind: str) -> None:
    records = log(kind)
    straight, restored = worked(records), worked(records, restored=True)
    assert restored.rows == straight.rows
    assert restored.changes == straight.changes
    one, other = (run.agent.source("liar") for run in (straight, restored))
    assert one.occupancy() == other.occupancy()
    assert (one.head.trust, one.head.limited) == (other.head.trust, other.head.limited)


@contextmanager
def counted_lines() -> Iterator[list[int]]:
    """Count the lines of Python that run: work, on a machine of any load."""
    lines = [0]

    def trace(_frame: Any, event: str, _arg: Any) -> Any:
        lines[0] += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield lines
    finally:
        sys.settrace(before)


@pytest.mark.parametrize("kind", ["block_sizes", "block_sizes_several", "groups", "media", "unpaired"])
def test_a_batch_costs_no_more_for_what_was_announced_before(kind: str) -> None:
    agent, costs = ReplicaAgent(SETTINGS, shards=4), []
    for seq, events in enumerate(lies(kind)):
        one = sent(seq, START, *events)
        with counted_lines() as lines:
            agent.apply(one)
        costs.append(lines[0] / len(events))
    most = 2500 if kind == "unpaired" else 100
    assert statistics.median(costs) <= most
    assert costs[-1] <= most


def test_adapters_beyond_the_limit_count_as_others(monkeypatch: pytest.MonkeyPatch) -> None:
    most = 50
    monkeypatch.setattr(limits, "MOST_ADAPTERS", most)
    names = [f"adapter-{number}" for number in range(most + 5)]
    agent = ReplicaAgent(SETTINGS)
    agent.apply(sent(0, START, *(Stored(packed(at), 16, lora=name) for at, name in enumerate(names, 1))))
    part = changes_of(agent.cut(START))[0]
    assert part.loras == [*names[:most], "(others)"]
    codes = [int.from_bytes(part.lora_codes[at : at + 2], "little") for at in range(0, len(names) * 2, 2)]
    assert codes == [*range(1, most + 1), *[most + 1] * 5]
    assert agent.source().overall_trust().trust == "complete"


def test_a_new_life_names_its_adapters_anew() -> None:
    agent = ReplicaAgent(SETTINGS)
    for life, name in enumerate(("old", "new"), 1):
        agent.apply(sent(0, START + life, Stored(packed(life), 16, lora=name), life=life))
    loras = [source.changes[0].loras for source in sources_of(agent.cut(START))]
    assert loras == [["old"], ["new"]]
    assert agent.source().head.loras == ["new"]


def test_limits_that_were_lowered_hold_from_then_on(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = ReplicaAgent(SETTINGS)
    agent.apply(sent(0, START, *(Stored(packed(at), 16 + at, lora=f"adapter-{at}") for at in range(1, 11))))
    agent.settings = msgspec.structs.replace(SETTINGS, max_pool_sizes=5)
    monkeypatch.setattr(limits, "MOST_ADAPTERS", 5)
    agent.moved(START)
    more = [Stored(packed(number), 17, lora=f"{number}") for number in range(11, 21)]
    agent.apply(sent(1, START, *more, Stored(b"\1" * 8, 64)))
    source = agent.source()
    assert source.head.loras == [*(f"adapter-{number}" for number in range(1, 11)), "(others)"]
    assert source.left_out == {"too_many_sizes": 1}


def test_a_head_of_any_size_is_saved_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bases, "HEAD_BYTES", 1000)
    agent = ReplicaAgent(SETTINGS, shards=4)
    agent.apply(*log("groups")[:60])
    before = agent.state.sources
    agent.moved(START)
    parts = {
        name: msgspec.msgpack.decode(agent.latest[slot_key(*name, BASE)], type=SourceBase).parts
        for name in before
    }
    name, count = max(parts.items(), key=lambda one: one[1])
    assert count > 1
    for key, source in before.items():
        assert agent.state.sources[key].head == source.head
    del agent.latest[slot_key(*name, part_slot(0, 1))]
    with pytest.raises(CheckpointCorrupt, match="part 1 of the base"):
        agent.killed()


def test_block_sizes_within_the_limit_are_all_there() -> None:
    agent = ReplicaAgent(SETTINGS)
    sizes = [1_000_003 + 2 * number for number in range(SETTINGS.max_pool_sizes)]
    agent.apply(sent(0, START, *(Stored(packed(number), size) for number, size in enumerate(sizes))))
    rows = rows_of(agent.cut(START), OccupancyRow)
    assert len(rows) == SETTINGS.max_pool_sizes
    assert {row.blocks for row in rows} == {1}
    assert not agent.source().head.limited
