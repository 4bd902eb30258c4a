"""What an engine knows of itself beside what the tables, and the index, say of it."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any, NamedTuple

from tests.live.engine import MODEL, LiveEngine
from tests.live.engine_process import BLOCK_TOKENS
from tests.live.whole_kvlens import WholeKvlens

WAIT_SECONDS = 60.0
"""For the tables to show what is true: it takes seconds, and more on a busy machine."""
_OCCUPANCY = """
    SELECT replica, sum(entries) AS copies, sum(blocks) AS blocks, sum(tokens) AS tokens,
        max(capacity_blocks) AS capacity, max(trust) AS trust
    FROM {0}.occupancy_10s FINAL
    WHERE medium = 'gpu' AND (replica, window) IN (
        SELECT replica, max(window) FROM {0}.stream_health_10s GROUP BY replica)
    GROUP BY replica"""
_FLOW = "SELECT replica, sum(removed_blocks) AS evicted FROM {0}.flow_10s FINAL GROUP BY replica"
_STREAM = """
    SELECT replica, sum(batches) AS batches, sum(lost_batches) AS lost, sum(restarts) AS restarts,
        sum(undecodable_events) AS undecodable, max(drift_blocks) AS drift
    FROM {0}.stream_health_10s FINAL GROUP BY replica"""
_COUNTERS = """
    SELECT replica, argMax(prefix_cache_queries, time) AS looked_up, argMax(prefix_cache_hits, time) AS found
    FROM {0}.engine_counters FINAL GROUP BY replica"""


class Facts(NamedTuple):
    """What both sides can say of one engine."""

    copies: int
    """Physical blocks with something in them that can be found."""
    blocks: int
    """Distinct ones."""
    tokens: int
    evicted: int
    """Copies, in all lives."""
    batches: int
    """Of events, in all lives."""
    lives: int
    capacity: int
    looked_up: int
    """Tokens that this life looked for in the prefix cache."""
    found: int
    trust: str = "complete"
    lost: int = 0
    """Batches."""
    undecodable: int = 0
    """Events."""
    drift: int = 0
    """Blocks beyond the capacity, at most."""
    other_blocks: int = 0
    """Blocks that one side has and the other has not."""


class Known(NamedTuple):
    """What engines say: facts, and the blocks that each holds now."""

    facts: dict[str, Facts]
    held: dict[str, set[int | str]]


class Ended(NamedTuple):
    """What lives of an engine had done that ended."""

    evicted: int = 0
    batches: int = 0

    def after(self, account: dict[str, Any]) -> Ended:
        """Return the same when one more has ended."""
        return Ended(self.evicted + account["evicted"], self.batches + account["batches"])


def asked(engines: Iterable[LiveEngine], ended: dict[str, Ended]) -> Known:
    """Ask engines, none of which has a request."""
    known = Known({}, {})
    for engine in engines:
        account = engine.account()
        assert not account["unsaid"], f"{engine.name} has events that no step has published"
        before = ended.get(engine.name, Ended()).after(account)
        cached = account["cached"]
        known.facts[engine.name] = Facts(
            copies=sum(copies for _, _, copies in cached),
            blocks=len(cached),
            tokens=len(cached) * BLOCK_TOKENS,
            evicted=before.evicted,
            batches=before.batches,
            lives=engine.lives,
            capacity=account["blocks"],
            looked_up=account["looked_up"],
            found=account["found"] - account["moved"],
        )
        known.held[engine.name] = {block for _, block, _ in cached}
    return known


def settled(kvlens: WholeKvlens, known: Known) -> dict[str, Facts]:
    """Return what kvlens says of the engines, as soon as it is what they say, else after a time."""
    deadline = time.monotonic() + WAIT_SECONDS
    while (found := _told(kvlens, known.held)) != known.facts and time.monotonic() < deadline:
        time.sleep(0.5)
    return found


def _told(kvlens: WholeKvlens, held: dict[str, set[int | str]]) -> dict[str, Facts]:
    rows: dict[str, dict[str, Any]] = {name: {} for name in held}
    for statement in (_OCCUPANCY, _FLOW, _STREAM, _COUNTERS):
        for row in kvlens.rows(statement):
            rows[row["replica"]] |= row
    return {
        name: Facts(
            **{figure: row[figure] for figure in Facts._fields if figure in row},
            lives=row["restarts"] + 1,
            other_blocks=_others(kvlens, name, held[name]),
        )
        for name, row in rows.items()
        if {"copies", "evicted", "batches", "found"} <= row.keys()
    }


def _others(kvlens: WholeKvlens, name: str, held: set[int | str]) -> int:
    """Count blocks of the engine that the index does not know, and those that only the index knows."""
    question = {"model_name": MODEL, "prompts": [[block] for block in sorted(held, key=str)]}
    answers = kvlens.index.ask("query_by_hash", question)[1].get("answers", []) if held else []
    both = sum(name in answer["instances"] for answer in answers)
    replicas = kvlens.index.ask("replicas")[1]["replicas"]
    in_index: int = sum(row["blocks"].get("gpu", 0) for row in replicas if row["replica"] == name)
    return len(held) + in_index - 2 * both
