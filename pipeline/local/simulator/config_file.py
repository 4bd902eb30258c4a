"""Writes the `[[replicas]]` part of a kvlens.toml that points at a simulated fleet."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ReplicaAddress:
    """Where one replica can be reached; endpoints are those of rank 0."""

    id: str
    model: str
    endpoint: str
    replay_endpoint: str | None
    metrics_url: str | None
    dp_ranks: int
    hash_scheme: str


def replicas_toml(replicas: Iterable[ReplicaAddress]) -> str:
    """Return TOML text, one `[[replicas]]` table each."""
    return "\n".join(_table(replica) for replica in replicas)


def _table(replica: ReplicaAddress) -> str:
    pairs = {
        "id": replica.id,
        "model": replica.model,
        "endpoint": replica.endpoint,
        "replay_endpoint": replica.replay_endpoint,
        "metrics_url": replica.metrics_url,
        "dp_ranks": replica.dp_ranks,
        "hash_scheme": replica.hash_scheme,
    }
    # A JSON string or integer is a TOML basic string or integer.
    lines = [f"{key} = {json.dumps(value)}" for key, value in pairs.items() if value is not None]
    return "\n".join(["[[replicas]]", *lines]) + "\n"
