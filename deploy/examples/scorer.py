"""Choose a replica for a prompt: match, load and trust in one score. An example to copy and change.

    python scorer.py http://127.0.0.1:8095/ MODEL HASH...

The index (`kvlens index`) says who holds the prompt's beginning; the load is what your router knows of it.
"""

from __future__ import annotations

import json
import sys
import urllib.request
from collections.abc import Mapping, Sequence
from typing import Any

CREDIT = {"complete": 1.0, "partial": 1.0, "degraded": 0.5}
"""Share of a match that counts, by trust: where something was lost, it may be gone."""
OF_TIER = {"gpu": 1.0, "cpu": 0.8, "disk": 0.5}
"""Share of a token's prefill that finding it in a tier saves."""
TOKENS_OF_A_REQUEST = 500
"""Prefill that one request more in the queue is worth, in tokens."""


def asked(url: str, model: str, hashes: Sequence[int | str], seconds: float = 0.05) -> dict[str, Any]:
    """Return who holds what; nobody, where the index has no answer in time, or only an old one."""
    body = json.dumps({"model_name": model, "block_hashes": [*hashes], "limit": 32}).encode()
    request = urllib.request.Request(f"{url}query_by_hash", body, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=seconds) as response:
            answer: dict[str, Any] = json.load(response)
    except OSError:
        return {}
    return {} if answer["index"]["stale"] else answer["instances"]


def saved(rank: Mapping[str, Any]) -> float:
    """Return how many tokens of prefill a rank saves with what it holds."""
    tiers = OF_TIER["gpu"] * rank["gpu"]
    tiers += OF_TIER["cpu"] * (rank["cpu"] - rank["gpu"])
    tiers += OF_TIER["disk"] * (rank["disk"] - rank["cpu"])
    return tiers * CREDIT[rank["trust"]]


def best(instances: Mapping[str, Any], load: Mapping[str, int]) -> str:
    """Return the replica that is worth most; `load` has the requests under way at each that may be chosen."""

    def score(replica: str) -> float:
        ranks = instances.get(replica, {"ranks": {}})["ranks"].values()
        return max(map(saved, ranks), default=0.0) - TOKENS_OF_A_REQUEST * load[replica]

    return max(sorted(load), key=score)


if __name__ == "__main__":
    url, model, *hashes = sys.argv[1:]
    instances = asked(url, model, hashes)
    chosen = best(instances, dict.fromkeys(instances, 0)) if instances else "anybody"
    sys.stdout.write(f"{chosen}\n")
