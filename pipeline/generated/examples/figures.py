"""Example records of the figures topic: a row of each table that it has."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any, get_args, get_origin, get_type_hints

import msgspec

from pipeline.generated.examples.blocks import DOMAIN, INCARNATION, START
from schemas.choices import FIRST_WINS
from schemas.figures import FIGURES

AT = datetime.fromtimestamp(START, timezone.utc)
OFFSET = 812
"""Of the record that the rows rest on."""
CHOICE_OFFSET = 41

VALUES: dict[str, Any] = {
    "window": AT,
    "time": AT + timedelta(seconds=5),
    "model": "qwen3-32b",
    "replica": "vllm-0",
    "hash_domain": DOMAIN,
    "medium": "gpu",
    "block_size": 16,
    "trust": "complete",
    "trust_since": AT,
    "incarnation": INCARNATION,
    "last_seq": 25,
    "last_batch_at": AT + timedelta(seconds=6.25),
    "connected": True,
    "sampled_one_in": 1,
    "capacity_blocks": 27_000,
    "entries": 4,
    "blocks": 3,
    "tokens": 48,
    "batches": 26,
    "events": 34,
    "lag_seconds": 0.0015,
    "stored_blocks": 8,
    "stored_tokens": 128,
    "filled_blocks": 5,
    "filled_tokens": 80,
    "removed_blocks": 4,
    "evicted_blocks": 2,
    "evicted_tokens": 32,
    "lifetime_hist": [*[0] * 10, 2],
    "needed_hist": [0, 0, 0, 0, 0, 32],
    "prefix_cache_queries": 1_048_576,
    "prefix_cache_hits": 786_432,
    "kv_cache_usage": 0.4375,
    "request_id": "req-8c1f",
    "tenant": "default",
    "best_tokens": 512,
    "chosen_tokens": 128,
    "best_replica": "vllm-3",
    "version": OFFSET,
}
"""By column; other columns are 0, empty or null, as their types allow."""
OF_TABLE: dict[str, dict[str, Any]] = {
    "fills_10s": {"cold_blocks": 3, "cold_tokens": 48},
    "choices": {"version": FIRST_WINS - CHOICE_OFFSET, "index_age_seconds": 0.031},
}


def figures_examples() -> dict[str, msgspec.Struct]:
    """Return {name: record}; the name is that of the table without the length of its windows."""
    return {
        kind.TABLE.removesuffix("_10s"): figure(**_columns(kind))  # type: ignore[attr-defined]
        for kind, figure in FIGURES.items()
    }


def _columns(kind: Any) -> dict[str, Any]:
    types = _types(kind)
    columns = {name: VALUES[name] if name in VALUES else _nothing(told) for name, told in types.items()}
    return columns | OF_TABLE.get(kind.TABLE, {})


def _types(kind: Any) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {name: hints[name] for name in kind.__struct_fields__}


def _nothing(told: Any) -> Any:
    if type(None) in get_args(told):
        return None
    return [] if get_origin(told) is list else told()
