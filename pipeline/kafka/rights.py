"""The least rights that each process needs in Kafka, from who writes and reads which topic. No IO.

In Kafka, Read and Write each include Describe. Source: the operations of each request in "Authorization and
ACLs" of Kafka's documentation, tried one by one in tests/integration/pipeline/kafka/test_rights.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

Resource = Literal["topic", "group", "transactional id"]
Operation = Literal["Create", "Delete", "Describe", "DescribeConfigs", "Read", "Write"]

CONNECTORS = "connectors"
INDEXES = "indexes"
RECORDING_INDEXES = "indexes with index.choices"
INDEX = "kvlens index"
CHOICES = "choices"
"""Suffix of the group whose members write choices into tables, next to the fleet agent."""
COPY = "copy"
"""Suffix of the group that remembers how far `kvlens topics copy` is."""
RECORDING = "kvlens index, index.choices"
AGENTS = {"replica": "replica agent", "fleet": "fleet agent"}
"""Agent, as in `worker.agents` and in the names of consumer groups -> its name in `topics.toml`."""
VERIFY = "kvlens verify"
REBUILD = "kvlens state rebuild"


def worker(agent: str) -> str:
    """Return the command of a worker that runs one agent."""
    return f"kvlens work, agent {agent}"


class CataloguedTopic(Protocol):
    """What `topics.toml` says about who uses a topic."""

    @property
    def name(self) -> str: ...
    @property
    def producers(self) -> list[str]: ...
    @property
    def consumers(self) -> list[str]: ...


@dataclass(frozen=True)
class Right:
    """One thing that a process does to a resource."""

    resource: Resource
    name: str
    operation: Operation
    why: str
    prefix: bool = False
    """Whether `name` is a prefix of the names that are meant."""


@dataclass(frozen=True)
class Role:
    """A process, or a task done by hand, with rights of its own."""

    command: str
    rights: tuple[Right, ...]


def roles(catalogue: Mapping[str, CataloguedTopic], *, topic_prefix: str, group: str) -> list[Role]:
    """Return all roles for topics with this prefix and consumer groups that begin with `group`.

    A worker that runs both agents needs the rights of both; an index that records choices, those of INDEX and
    of RECORDING.
    """
    names = {key: f"{topic_prefix}.{topic.name}" for key, topic in catalogue.items()}
    groups = {agent: f"{group}.{agent}" for agent in AGENTS}
    choices = f"{group}.{CHOICES}"
    return [
        Role("kvlens topics apply", _apply(names)),
        Role("kvlens connect", _uses(catalogue, names, CONNECTORS)),
        *(
            Role(
                worker(agent),
                _work(catalogue, names, name, groups[agent], choices if agent == "fleet" else None),
            )
            for agent, name in AGENTS.items()
        ),
        Role(INDEX, _uses(catalogue, names, INDEXES)),
        Role(RECORDING, _uses(catalogue, names, RECORDING_INDEXES)),
        Role(VERIFY, _verify(names, [*groups.values(), choices])),
        Role("kvlens doctor", _doctor(names, groups)),
        Role(REBUILD, _rebuild(names, groups)),
    ]


def reading_reports(topic: str, group: str) -> Role:
    """Return what `kvlens connect` also needs to read `lmcache.topic`, in whichever Kafka that is."""
    return Role(
        "kvlens connect, lmcache.topic",
        (
            Right("topic", topic, "Read", "reads what LMCache's servers report"),
            Right("group", group, "Read", "commits how far it has read"),
        ),
    )


def copying(
    catalogue: Mapping[str, CataloguedTopic], old_prefix: str, *, topic_prefix: str, group: str
) -> Role:
    """Return what is needed to copy the log to the topics of a new installation."""
    events, positions = catalogue["events"].name, catalogue["positions"].name
    return Role(
        "kvlens topics copy",
        (
            Right("topic", f"{old_prefix}.{events}", "Read", "reads the log"),
            Right("topic", f"{topic_prefix}.{events}", "Read", "sees what an earlier copy sent last"),
            Right("topic", f"{topic_prefix}.{events}", "Write", "writes it"),
            Right("topic", f"{topic_prefix}.{positions}", "Describe", "sees that no connector writes yet"),
            Right("group", f"{group}.{COPY}", "Read", "commits how far it is"),
        ),
    )


def on_topics(role: Role) -> dict[str, list[str]]:
    """Return what a role does with topics: operations by name."""
    operations: dict[str, list[str]] = {}
    for right in role.rights:
        if right.resource == "topic":
            operations.setdefault(right.name, []).append(right.operation)
    return operations


def _apply(names: Mapping[str, str]) -> tuple[Right, ...]:
    rights = []
    for name in names.values():
        rights.append(Right("topic", name, "Create", "makes what is missing"))
        rights.append(Right("topic", name, "Describe", "sees what is there"))
    return tuple(rights)


def _uses(catalogue: Mapping[str, CataloguedTopic], names: Mapping[str, str], who: str) -> tuple[Right, ...]:
    rights = []
    for key, topic in catalogue.items():
        if who in topic.consumers:
            rights.append(Right("topic", names[key], "Read", "reads it"))
        if who in topic.producers:
            rights.append(Right("topic", names[key], "Write", "writes it"))
    return tuple(rights)


def _work(
    catalogue: Mapping[str, CataloguedTopic],
    names: Mapping[str, str],
    who: str,
    group: str,
    choices: str | None,
) -> tuple[Right, ...]:
    used = _uses(catalogue, names, who)
    seen = {right.name for right in used}
    others = [name for name in names.values() if name not in seen]
    return (
        *used,
        *(Right("topic", name, "Describe", "looks at every topic first") for name in others),
        Right("group", group, "Read", "joins it and commits offsets"),
        *(
            Right("group", name, "Read", "commits how far choices are in the table")
            for name in (choices,)
            if name
        ),
        Right("transactional id", f"{group}-", "Write", "commits checkpoints", prefix=True),
    )


def _verify(names: Mapping[str, str], groups: Sequence[str]) -> tuple[Right, ...]:
    return (
        Right("topic", names["events"], "Read", "recounts it"),
        Right("topic", names["residency"], "Read", "recounts it"),
        Right("topic", names["checkpoints_fleet"], "Read", "sees what was held where that begins"),
        Right("topic", names["choices"], "Read", "recounts it"),
        Right("topic", names["figures"], "Read", "compares it with the tables"),
        *(Right("group", name, "Describe", "asks how far the worker is") for name in groups),
    )


def _rebuild(names: Mapping[str, str], groups: Mapping[str, str]) -> tuple[Right, ...]:
    used = {"events", "residency", *(f"checkpoints_{agent}" for agent in groups)}
    others = [name for key, name in names.items() if key not in used]
    rights = [
        *(Right("topic", name, "Describe", "looks at every topic first") for name in others),
        Right("topic", names["events"], "Read", "looks how old its beginning is"),
        Right("topic", names["residency"], "Read", "sees whether the fleet agent has read all of it"),
        Right("topic", names["residency"], "Delete", "empties it"),
    ]
    for agent, group in groups.items():
        name = names[f"checkpoints_{agent}"]
        rights += [
            Right("topic", name, "Read", "sees what there is to discard"),
            Right("topic", name, "Write", "discards it"),
            Right("group", group, "Read", "asks for members, and moves its offsets back"),
            Right("transactional id", f"{group}-", "Write", "discards all or nothing", prefix=True),
        ]
    return tuple(rights)


def _doctor(names: Mapping[str, str], groups: Mapping[str, str]) -> tuple[Right, ...]:
    rights = []
    for key, name in names.items():
        read = key not in ("residency", "choices", "figures")
        rights.append(
            Right("topic", name, "Read", "reads its newest records")
            if read
            else Right("topic", name, "Describe", "asks where it ends")
        )
        rights.append(Right("topic", name, "DescribeConfigs", "compares its settings"))
    rights += [Right("group", name, "Describe", "asks for members and offsets") for name in groups.values()]
    return tuple(rights)
