"""How much fits on a GPU, where its engine announces wider blocks than it counts."""

from __future__ import annotations

from pipeline.verify.replica.source import SourceRecount
from schemas.events import EngineCounters, Stored
from schemas.rows import OccupancyRow
from schemas.settings import Worker
from tests.support.inputs.event_records import notice, record, sent
from tests.support.inputs.packed import packed
from tests.support.replica_agent import ReplicaAgent, rows_of

START = 1_800_000_000.0


def test_a_scrape_that_shows_what_capacity_means_is_in_the_next_rows() -> None:
    """The engine says the same as before, but by now its use shows that its tokens are those of all ranks."""
    counters = EngineCounters(capacity_blocks=100, block_size=16, kv_cache_usage=0.5, unused_blocks=0)
    scrape = record(notice(START + 2, counters))
    stored = sent(1, START + 1, Stored(packed(*range(2, 12)), 32, 320))
    agent, recount = ReplicaAgent(Worker()), SourceRecount("r", 0, Worker())
    shown = []
    for offset, one in enumerate((sent(0, START), scrape, stored, scrape, scrape)):
        agent.apply(one)
        recount.apply(offset, one)
        shown.append([(row.capacity_blocks, row.version) for row in rows_of(agent.cut(START), OccupancyRow)])
    assert shown[2:] == [[(100, 2)], [(50, 3)], [(50, 4)]]
    assert (recount.capacity_blocks, recount.version) == (50, 4)
