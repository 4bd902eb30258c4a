"""The block pool against a naive recount of the same operations."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.simulator.engine.block_pool import BlockPool, PoolExhaustedError
from tests.support.suite.night import examples


class NaivePool:
    """The same rules with lists and scans: a queue of idle blocks, oldest first, and what each holds."""

    def __init__(self, num_blocks: int) -> None:
        self.queue = list(range(1, num_blocks))
        self.uses = [0] * num_blocks
        self.content: list[str | None] = [None] * num_blocks
        self.evicted: list[str] = []

    def allocate(self, count: int) -> list[int]:
        taken = [self.queue.pop(0) for _ in range(count)]
        for block in taken:
            content = self.content[block]
            if content is not None:
                self.evicted.append(content)
                self.content[block] = None
            self.uses[block] = 1
        return taken

    def copies(self) -> Counter[str]:
        return Counter(content for content in self.content if content is not None)


keys = st.sampled_from("abcdef")
operations = st.lists(
    st.one_of(
        st.tuples(st.just("run"), st.integers(1, 4), keys),
        st.tuples(st.just("hit"), st.integers(0, 0), keys),
        st.tuples(st.just("end"), st.integers(0, 5), keys),
        st.tuples(st.just("clear"), st.integers(0, 0), keys),
    ),
    max_size=80,
)


@examples(150)
@given(operations, st.integers(2, 12))
def test_random_walks_agree_with_a_recount(walk: list[tuple[str, int, str]], num_blocks: int) -> None:
    pool: BlockPool[str] = BlockPool(num_blocks)
    naive = NaivePool(num_blocks)
    running: list[list[int]] = []
    evicted: list[str] = []
    for what, number, key in walk:
        if what == "run":
            if number > len(naive.queue):
                with pytest.raises(PoolExhaustedError) as refused:
                    pool.allocate(number)
                assert (refused.value.wanted, refused.value.free) == (number, len(naive.queue))
                continue
            blocks, gone = pool.allocate(number)
            evicted += gone
            assert blocks == naive.allocate(number)
            for i, block in enumerate(blocks[:-1]):  # the last one stays partial
                pool.cache(block, key + str(i))
                naive.content[block] = key + str(i)
            running.append(blocks)
        elif what == "hit":
            found = pool.lookup(key + "0")
            assert (found is not None) == (key + "0" in naive.content)
            if found is not None:
                assert naive.content[found] == key + "0"
                assert pool.idle([found]) == (naive.uses[found] == 0)
                pool.touch([found])
                if naive.uses[found] == 0:
                    naive.queue.remove(found)
                naive.uses[found] += 1
                running.append([found])
        elif what == "end" and running:
            blocks = running.pop(number % len(running))
            pool.release(reversed(blocks))
            for block in reversed(blocks):
                naive.uses[block] -= 1
                if naive.uses[block] == 0:
                    naive.queue.append(block)
        elif what == "clear":
            dropped = pool.clear()
            if any(naive.uses):
                assert dropped is None
            else:
                assert dropped == naive.copies().total()
                naive.content = [None] * num_blocks
        assert evicted == naive.evicted
        assert dict(pool.copies()) == naive.copies()
        assert pool.physical == naive.copies().total()
        assert pool.distinct == len(naive.copies())
        assert pool.free == len(naive.queue)
        assert pool.used == sum(uses > 0 for uses in naive.uses)


def test_the_tail_of_a_request_is_evicted_first() -> None:
    pool: BlockPool[str] = BlockPool(4)
    blocks, _ = pool.allocate(3)
    for block, key in zip(blocks, "abc", strict=True):
        pool.cache(block, key)
    pool.release(reversed(blocks))
    assert pool.allocate(2)[1] == ["c", "b"]


def test_copies_leave_one_by_one() -> None:
    pool: BlockPool[str] = BlockPool(3)
    blocks, _ = pool.allocate(2)
    for block in blocks:
        pool.cache(block, "same")
    assert dict(pool.copies()) == {"same": 2}
    pool.release(blocks)
    assert pool.allocate(1)[1] == ["same"]
    assert "same" in pool
    assert pool.allocate(1)[1] == ["same"]
    assert "same" not in pool


def test_an_endless_pool_never_evicts() -> None:
    pool: BlockPool[int] = BlockPool(None)
    for key in range(5000):
        blocks, evicted = pool.allocate(1)
        assert not evicted
        pool.cache(blocks[0], key)
        pool.release(blocks)
    assert pool.distinct == 5000


def test_a_pool_of_the_null_block_alone_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 2"):
        BlockPool(1)
