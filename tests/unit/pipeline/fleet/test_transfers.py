"""A prefill and a decode engine: causes do not depend on partitions, on when they are read, or on clocks.

The pair is played through both agents' states. Its figures are those of its truth (tests/captures/README.md).
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from itertools import product

import pytest

from pipeline.traces.reading import read_trace
from schemas.fleet_rows import FillsRow
from schemas.settings import Fleet
from tests.support.checkout import CAPTURES, TRACES
from tests.support.fleet_recount import agree, compared, rows_of
from tests.support.inputs.traced import events, residency
from tests.support.pairs.judged import AVOIDABLE, causes, judged
from tests.support.pairs.played import LAYOUTS, READINGS, played
from tests.support.pairs.recorded import fleets

PAIR = fleets(CAPTURES / "pairs")["small"]


@pytest.mark.parametrize("clock", [-1.0, -0.1, 0.0, 1.0])
@pytest.mark.parametrize("labelled", [True, False])
def test_avoidable_tokens_are_those_of_the_pair(clock: float, labelled: bool) -> None:
    """Whether settings say that an engine receives KV, or only its counters."""
    for seed, (layout, reading) in enumerate(product(LAYOUTS.values(), READINGS.values())):
        shards = played(PAIR, {"decode-0": clock}, layout, reading, seed, labelled=labelled)
        tokens = shards.tokens()
        assert not shards.out_of_order()
        assert shards.sums("transferred_again_tokens") == {"decode-0": 7_120}
        # The prefill replica had evicted 928 itself; the rest are answers.
        at_receivers = shards.sums("peer_at_receivers_tokens", "evicted_at_receivers_tokens")
        assert at_receivers == {"prefill-0": 4_368 - 928}
        assert {
            engine: {
                "filled": of.total() - of["reannounced"],
                "transferred": of["transferred"],
                "generated": of["generated"],
                "avoidable": sum(of[cause] for cause in AVOIDABLE),
            }
            for (engine, _), of in tokens.items()
        } == {
            "prefill-0": {"filled": 20_560, "transferred": 0, "generated": 0, "avoidable": 4_368},
            # Moved were 18,864; 4,448 were pulled in vain, and computed then, as no event shows. Of answers,
            # and the ends of prompts before them, there are 161 blocks.
            "decode-0": {"filled": 34_128, "transferred": 23_312, "generated": 2_576, "avoidable": 1_568},
        }


def test_each_block_has_the_cause_that_the_engines_know() -> None:
    shards = played(PAIR, {})
    recounted = causes(shards.applied)
    found = {engine.name: judged(engine, recounted) for engine in PAIR}
    assert {name: each.said for name, each in found.items()} == {
        name: of for (name, _), of in shards.tokens().items()
    }, "agent and recount"
    decode, prefill = found["decode-0"], found["prefill-0"]
    assert (prefill.came, prefill.wrong, prefill.avoidable, prefill.unknown) == (0, 0, 4_368, 0)
    assert (decode.came, decode.avoidable, decode.unknown) == (18_864, 6_032, 0)
    assert decode.prompt == 18_864 + 12_688
    assert (decode.wrong, decode.wrong_unless_failed) == (4_448, 0), "nobody tells of a pull that fails"


def test_of_a_trace_all_that_decode_replicas_fill_is_transferred() -> None:
    """Four of them behind two that compute the prompts, all with caches that evict."""
    requests = read_trace(TRACES / "mooncake_conversation_1500.jsonl.gz").requests[:600]
    prefilling, decoding, blocks = 2, 4, 1_000
    records = residency(events(requests, prefilling + decoding, blocks, prefilling=prefilling))
    rows = rows_of(records, Fleet())
    agree(compared(records, rows, Fleet()), rows)
    filled, transferred = Counter[str](), Counter[str]()
    for row in rows:
        if isinstance(row, FillsRow):
            filled[row.replica] += row.filled_blocks
            transferred[row.replica] += row.transferred_blocks
    caches = [OrderedDict[int, None]() for _ in range(prefilling + decoding)]
    missed = Counter[str]()
    for number, request in enumerate(requests):
        for place in (number % prefilling, prefilling + number % decoding):
            missed[f"r{place}"] += looked_up(caches[place], request.hash_ids, blocks)
    assert filled == missed
    assert +transferred == Counter(
        {f"r{prefilling + n}": missed[f"r{prefilling + n}"] for n in range(decoding)}
    )


def looked_up(cache: OrderedDict[int, None], ids: tuple[int, ...], most: int) -> int:
    """Look a prompt up in a cache that forgets what was used least recently; return how much it lacked."""
    hits = next((place for place, block in enumerate(ids) if block not in cache), len(ids))
    for block in ids[:hits]:
        cache.move_to_end(block)
    while len(cache) + len(ids) - hits > most:
        cache.popitem(last=False)
    for block in reversed(ids):
        cache[block] = None
        cache.move_to_end(block)
    return len(ids) - hits
