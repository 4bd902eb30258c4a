"""Rows of the answer, as they are written in JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pipeline.fleet.causes import FILL_CAUSES
from pipeline.traces.trace import HashId, Trace, TraceRequest
from pipeline.whatif.playing import Played
from pipeline.whatif.promise import ideal, promised
from pipeline.whatif.recorded import RecordedFleet, Saved


def trace_facts(trace: Trace) -> dict[str, Any]:
    """Return what a trace holds, and how its units are known; `seconds` is None where it has no times."""
    requests = trace.requests
    return {
        "form": trace.form,
        "requests": len(requests),
        "seconds": requests[-1].seconds - requests[0].seconds if requests and trace.times else None,
        "times": trace.times,
        "block_size": trace.block_size,
        "block_size_from": trace.block_size_from,
        "queried_blocks": sum(len(request.hash_ids) for request in requests),
        "distinct_blocks": len({block for request in requests for block in request.hash_ids}),
        "sessions_from": trace.sessions_from,
        "remarks": list(trace.remarks),
        "ids_of_prefixes": _ids_of_prefixes(requests),
    }


def _ids_of_prefixes(requests: Sequence[TraceRequest]) -> bool:
    """Return whether every hash id can stand for its whole prefix: it always follows the same one."""
    before: dict[HashId, HashId | None] = {}
    for request in requests:
        last: HashId | None = None
        for hash_id in request.hash_ids:
            if before.setdefault(hash_id, last) != last:
                return False
            last = hash_id
    return True


def played_row(actual: Played, row: Played) -> dict[str, Any]:
    """Return the result under the conditions of `row`, and what the actual fleet's figures promise for them.

    Rates are ratios of sums over the replicas, 0 to 1; `promised` is None in the actual row.
    """
    conditions, queried = row.conditions, row.queried_blocks
    block_rate, token_rate = row.hit_rates
    answer: dict[str, Any] = {
        "actual": row is actual,
        "replicas": conditions.replicas,
        "capacity_blocks": conditions.capacity,
        "capacity_tokens": None if conditions.capacity is None else conditions.capacity * row.block_size,
        "routing": conditions.routing,
        "queried_blocks": queried,
        "hit_blocks": row.hit_blocks,
        "block_hit_rate": block_rate,
        "token_hit_rate": token_rate,
        "own_ideal_hit_rate": _rate(ideal(row, shared=False), queried),
        "ideal_hit_rate": _rate(ideal(row), queried),
        "fills": {cause: row.potential.blocks[cause] for cause in FILL_CAUSES},
        "promised": None,
    }
    if row is not actual:
        promise = promised(actual, row)
        answer["promised"] = {
            "at_least": None if promise.at_least is None else _rate(promise.at_least, queried),
            "at_most": _rate(promise.at_most, queried),
            "kept": promise.kept_by(row.hit_blocks),
        }
    return answer


def recorded_row(fleet: RecordedFleet) -> dict[str, Any]:
    """Return what was recorded: tokens filled, by cause."""
    return {
        "actual": True,
        "replicas": fleet.sources,
        "computing": fleet.computing,
        "filled_tokens": fleet.potential.filled_tokens,
        "fills": {cause: fleet.potential.tokens[cause] for cause in FILL_CAUSES},
    }


def saved_row(fleet: RecordedFleet, replicas: int, extra_tokens: int | None, saved: Saved) -> dict[str, Any]:
    """Return how many tokens of prefill other conditions would have saved, and what share of it."""
    prefill = fleet.potential.prefill_tokens
    return {
        "actual": False,
        "replicas": replicas,
        "extra_tokens": extra_tokens,
        "saved_at_least": saved.at_least,
        "saved_at_most": saved.at_most,
        "share_at_least": _rate(saved.at_least, prefill),
        "share_at_most": _rate(saved.at_most, prefill),
    }


def _rate(part: int, whole: int) -> float:
    return part / whole if whole else 0.0
