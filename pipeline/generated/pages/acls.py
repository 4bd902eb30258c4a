"""docs/acls.md: the least rights that each process needs of Kafka."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from pipeline.generated.pages.markdown import code, fenced, page
from pipeline.generated.topics_file import load_topics
from pipeline.kafka.rights import Role, copying, on_topics, reading_reports, roles
from schemas.settings import Lmcache

INTRODUCTION = """\
If your brokers check access, give each process a user and these rights, from any host (`*`). In the names,
`kvlens` is `kafka.topic_prefix` (topics) and `kafka.group` (groups, transactional ids).

- Read and Write include Describe.
- A worker that runs both agents (`worker.agents = "both"`, the default) needs the rights of both.
- Brokers before 3.0 also want IdempotentWrite on the cluster from `kvlens connect`.
- `kvlens topics copy --from old` copies the log of the topics with the prefix `old`.
- `kvlens doctor` shows how far `lmcache.topic` is read, with Describe on it and on `lmcache.group`. With Read
  on `kvlens.residency.v1` and `kvlens.choices.v1` it counts what waits there; else it says "up to".
- `kvlens topics list` needs Describe on the topics, `kvlens migrate` nothing, `kvlens serve` what the doctor
  needs."""
PLAIN = ("reads it", "writes it")
"""Reasons that the operation says already."""

MISSING = """\
## When a right is missing

Every process asks the broker what it may do before it begins, and names the first right that it lacks:
`this user lacks Write on the topic kvlens.residency.v1`. `kvlens connect`, `kvlens work` and `kvlens index`
wait for the right, say so once a minute, and go on without a restart. `kvlens verify`, `topics` and `state`
end with that line, and `kvlens doctor` makes a finding of it. If the right is lost while they run:

- a worker or a command ends with that line (a worker with code 69 or 75, and its next start waits);
- `kvlens connect` without Write on the events topic keeps records in memory and logs `publish_failed`, as it
  does when Kafka is away.

## Granting them

With Kafka's own tool, for example:"""


def acls_page() -> bytes:
    """Return the page."""
    blocks = [INTRODUCTION]
    names = {"topic_prefix": "kvlens", "group": "kvlens"}
    found = roles(load_topics(), **names)
    further = copying(load_topics(), "old", **names), reading_reports("lmcache-cache-events", Lmcache().group)
    for role in (*found, *further):
        blocks += [f"## {role.command}", _rights(role)]
    [connect] = [on_topics(role) for role in found if role.command == "kvlens connect"]
    return page(
        "Kafka rights",
        "`pipeline/kafka/rights.py` and `schemas/topics.toml`",
        *blocks,
        MISSING,
        fenced("sh", _command(list(connect), *connect.values())),
    )


def _rights(role: Role) -> str:
    """Return what a role may do; names with the same rights for the same reason share a line."""
    by_resource = groupby(role.rights, lambda right: (right.resource, right.name, right.prefix))
    names: dict[tuple[str, str, str], list[str]] = {}
    for (resource, name, prefix), rights in by_resource:
        found = list(rights)
        operations = ", ".join(right.operation for right in found)
        why = "; ".join(right.why for right in found if right.why not in PLAIN)
        named = f"{resource}s that begin with" if prefix else resource
        names.setdefault((named, operations, why), []).append(code(name))
    return "\n".join(
        f"- {operations} on {_several(named, alike)} {', '.join(alike)}{why and f': {why}'}"
        for (named, operations, why), alike in names.items()
    )


def _several(named: str, names: Sequence[str]) -> str:
    return f"{named}s" if len(names) > 1 and named in ("topic", "group") else named


def _command(topics: Sequence[str], operations: Sequence[str], *others: Sequence[str]) -> str:
    assert all(other == operations for other in others), "one command is for topics with the same rights"
    return (
        "kafka-acls.sh --bootstrap-server kafka-1:9092 --add --allow-principal User:kvlens-connect"
        f"{''.join(f' --operation {each}' for each in operations)}"
        f"{''.join(f' --topic {each}' for each in topics)}"
    )
