"""docs/acls.md: the least rights that each process needs of Kafka."""

from __future__ import annotations

from itertools import groupby

from pipeline.generated.pages.markdown import code, fenced, page, table
from pipeline.generated.topics_file import load_topics
from pipeline.kafka.rights import Right, Role, roles

INTRODUCTION = """\
If your brokers check access, give each process a user and these rights, from any host (`*`). They are the
least that it needs: the tests run every process with them alone, and take some away to see that the process
says so. In the names, `kvlens` is `kafka.topic_prefix` (topics) and `kafka.group` (groups,
transactional ids).

- In Kafka, Read and Write include Describe, so Describe stands only where neither does.
- A worker that runs both agents (`worker.agents = "both"`, the default) needs the rights of both.
- Brokers before 3.0 also want IdempotentWrite on the cluster from `kvlens connect`.
- `kvlens connect` joins no consumer group. `kvlens topics list` needs Describe on the topics.
  `kvlens migrate` does not talk to Kafka, and `kvlens serve` only for the doctor's findings."""

BY_TOOL = """\
## Granting them

With Kafka's own tool, for example:"""

MISSING = """\
## When a right is missing

Kafka hides topics that a user may not Describe, so a process says that the topic does not exist or that it
may not see it. Otherwise the error line names the resource, as in `TopicAuthorizationFailedError`. At their
start, `kvlens connect` and `kvlens work` wait until they have the rights to begin; once a minute, and on
`/readyz`, they say which one is missing. One case is quieter:

- Without Write on the events topic, `kvlens connect` keeps running, keeps records in memory and logs
  `publish_failed`, as it does when Kafka is away."""


def acls_page() -> bytes:
    """Return the page."""
    blocks = [INTRODUCTION]
    found = roles(load_topics(), topic_prefix="kvlens", group="kvlens")
    for role in found:
        blocks += [f"## {role.command}", _rights(role)]
    [connect] = [role for role in found if role.command == "kvlens connect"]
    commands = "\n".join(_command(right) for right in connect.rights)
    return page(
        "Kafka rights",
        "`pipeline/kafka/rights.py` and `schemas/topics.toml`",
        *blocks,
        MISSING,
        BY_TOOL,
        fenced("sh", commands),
    )


def _rights(role: Role) -> str:
    by_resource = groupby(role.rights, lambda right: (right.resource, right.name, right.prefix))
    rows = []
    for (resource, name, prefix), rights in by_resource:
        found = list(rights)
        named = f"begins with {code(name)}" if prefix else code(name)
        operations = ", ".join(right.operation for right in found)
        rows.append((resource, named, operations, "; ".join(right.why for right in found)))
    return table(("Resource", "Name", "Operations", "Why"), rows)


def _command(right: Right) -> str:
    kind = right.resource.replace(" ", "-")
    pattern = " --resource-pattern-type prefixed" if right.prefix else ""
    return (
        "kafka-acls.sh --bootstrap-server kafka-1:9092 --add --allow-principal User:kvlens-connect"
        f" --operation {right.operation} --{kind} {right.name}{pattern}"
    )
