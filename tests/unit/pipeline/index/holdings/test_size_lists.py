"""Lists of block sizes: as many are kept as pools have, however many pools come and leave."""

from __future__ import annotations

import random

from pipeline.index.holdings.holdings import Holdings
from pipeline.index.holdings.size_lists import SizeLists


def test_each_list_stays_as_it_is_while_anybody_has_it() -> None:
    rng = random.Random(1)
    lists = SizeLists()
    taken: list[tuple[int, list[int]]] = []
    for _ in range(5_000):
        if len(taken) < 40 and rng.random() < 0.5:
            sizes = [rng.randrange(5) for _ in range(rng.randrange(4))]
            taken.append((lists.acquire(sizes), sizes))
        elif taken:
            begin, sizes = taken.pop(rng.randrange(len(taken)))
            lists.release(begin, len(sizes))
        assert [lists.of(begin, len(sizes)) for begin, sizes in taken] == [sizes for _, sizes in taken]
    # At most 40 of each length, of which the longest have three numbers.
    assert len(lists.array) <= 256


def test_pools_that_come_and_leave_leave_nothing_behind() -> None:
    holdings = Holdings()
    source = holdings.new_source(0)
    pools = [holdings.new_pool(source, tier=0, group=0) for _ in range(3)]
    before = holdings.bytes_allocated
    for size in range(2_000):
        for at, pool in enumerate(pools):
            holdings.describe(pool, [], 0)
            holdings.describe(pool, [16], 0)
            holdings.describe(pool, [16, size, size + at], 0)
            holdings.retire(holdings.renewed(pool))
            pools[at] = holdings.new_pool(source, tier=0, group=0)
    assert holdings.bytes_allocated == before
