"""Writes the `[[replicas]]` tables of a kvlens.toml that points at a simulated fleet."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field

import tomlkit


@dataclass(frozen=True, slots=True)
class ReplicaAddress:
    """Where one replica listens; endpoints are those of rank 0."""

    id: str
    model: str
    endpoint: str
    replay_endpoint: str | None
    metrics_url: str | None
    dp_ranks: int
    role: str | None = field(default=None, kw_only=True)
    hash_scheme: str
    """The last key of its table: one that has it is complete."""


def replicas_toml(replicas: Iterable[ReplicaAddress]) -> str:
    """Return TOML text, one `[[replicas]]` table each; what is None is left out."""
    tables = (asdict(replica).items() for replica in replicas)
    return tomlkit.dumps(
        {"replicas": [{key: value for key, value in table if value is not None} for table in tables]}
    )
