"""The least rights that each process needs in ClickHouse, as the text between GRANT and TO. No IO."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

LOCAL = "_local"
"""Suffix of the database that has the local tables of a cluster."""


@dataclass(frozen=True)
class Right:
    """A right, and why the process needs it."""

    grant: str
    why: str


@dataclass(frozen=True)
class Role:
    """A user: the commands that need no other, its rights, and settings of its profile."""

    name: str
    commands: tuple[str, ...]
    rights: tuple[Right, ...]
    profile: Mapping[str, str] = field(default_factory=dict)


def roles(
    database: str, *, engines: Iterable[str], filled: Iterable[str], on_cluster: bool = False
) -> list[Role]:
    """Return the roles; tables have these `engines`, and materialized views write those of `filled`."""
    databases = (database, database + LOCAL) if on_cluster else (database,)
    kinds = (*sorted(engines), *(("Distributed",) if on_cluster else ()))
    made = [
        *(Right(f"CREATE DATABASE ON {each}.*", "makes the database") for each in databases),
        *(Right(f"CREATE TABLE ON {each}.*", "makes tables and, with it, views") for each in databases),
        Right(f"DROP VIEW ON {database}.*", "replaces views by better ones"),
        *(Right(f"ALTER ADD COLUMN ON {each}.*", "adds columns") for each in databases),
        *(Right(f"TABLE ENGINE ON {kind}", "tables are of this engine") for kind in kinds),
        *(Right(f"SELECT ON {each}.*", "makes views only of what it may read") for each in databases),
        *(Right(f"INSERT ON {each}.schema_migrations", "notes what was applied") for each in databases),
    ]
    home = databases[-1]
    made += [Right(f"INSERT ON {home}.{each}", "its views write it") for each in sorted(filled)]
    written = [
        Right(f"SELECT, INSERT ON {each}.*", "writes tables, recomputes minutes and hours from them")
        for each in databases
    ]
    read = [Right(f"SELECT ON {each}.*", "reads tables and views") for each in databases]
    if on_cluster:
        made += [
            Right("CLUSTER ON *.*", "sends statements to all nodes"),
            Right("REMOTE ON *.*", "makes Distributed tables"),
        ]
    return [
        Role("kvlens_migrate", ("kvlens migrate",), tuple(made)),
        Role("kvlens_worker", ("kvlens work",), tuple(written)),
        Role(
            "kvlens_reader",
            ("kvlens serve", "kvlens doctor", "kvlens verify", "kvlens advise", "Grafana"),
            tuple(read),
            # 1 would refuse the time limits that the page and Grafana set for their queries.
            {"readonly": "2", **({"prefer_global_in_and_join": "1"} if on_cluster else {})},
        ),
    ]
