"""Prompts whose block hashes the engines' own code computed, and the library has to."""

from __future__ import annotations

import random
from typing import Any

SEEDS = (None, "0")
BLOCK_SIZES = (4, 16)
PAGE_SIZES = (1, 4, 64)


def _tokens(count: int, largest: int, seed: int) -> list[int]:
    chosen = random.Random(seed)
    return [min(int(largest ** chosen.random()), largest - 1) for _ in range(count)]


def vllm_prompts() -> dict[str, dict[str, Any]]:
    """Return name -> prompt: token ids, adapter, salt, multimodal items as (identifier, offset, length)."""
    lora = {"name": "sql-adapter", "path": "/adapters/sql", "number": 3}
    items = [["img-a" * 9, 2, 6], ["img-b" * 9, 8, 8], ["img-a" * 9, 16, 1], ["img-c" * 9, 19, 21]]
    edges = [0, 1, 23, 24, 255, 256, 65535, 65536, 2**32 - 1, 2**31, 151935, 7]
    plain = _tokens(70, 200_000, 1)
    return {
        "plain": {"tokens": plain},
        "edges": {"tokens": edges * 3},
        "short": {"tokens": plain[:3]},
        "long": {"tokens": _tokens(3000, 200_000, 2)},
        "lora": {"tokens": plain, "lora": lora},
        "salt": {"tokens": plain, "salt": "tenänt"},
        "items": {"tokens": plain, "items": items},
        "all": {"tokens": plain, "lora": lora, "salt": "s", "items": items},
    }


def sglang_prompts() -> dict[str, dict[str, Any]]:
    """Return name -> prompt: token ids, salt, extra key of an adapter."""
    plain = _tokens(200, 200_000, 3)
    return {
        "plain": {"tokens": plain},
        "short": {"tokens": plain[:3]},
        "edges": {"tokens": [0, 1, 255, 65536, 2**32 - 1, 2**31] * 12},
        "wide": {"tokens": [*plain[:70], 2**32, 2**62, *plain[70:140]]},
        "salt": {"tokens": plain, "salt": "tenänt"},
        "adapter": {"tokens": plain, "extra_key": "user" + "0a" * 16},
        "both": {"tokens": plain, "salt": "s", "extra_key": "0b" * 16},
    }
