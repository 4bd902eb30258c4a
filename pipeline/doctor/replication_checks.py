"""How many copies of the log there are, and how many have to acknowledge. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from pipeline.doctor.facts import KafkaFacts, TopicFacts
from pipeline.doctor.finding import Finding, Severity

SEVERAL_BROKERS = 3
"""With so many brokers, each can keep a copy, and the others go on while one is away."""
_MIN_IN_SYNC = "min.insync.replicas"

_Judgement = tuple[str, Severity, str, str]
"""Code, severity, message and remedy."""


def replication_findings(kafka: KafkaFacts) -> Iterator[Finding]:
    """Yield what is wrong with the copies; topics with the same trouble share a finding."""
    concerned: dict[_Judgement, list[str]] = defaultdict(list)
    for topic in kafka.topics:
        if topic.partitions:
            for judgement in (*_copies(topic, kafka.brokers), *_in_sync(topic)):
                concerned[judgement].append(topic.name)
    for (code, severity, message, remedy), names in concerned.items():
        yield Finding(code, severity, message, remedy, tuple(names))


def _copies(topic: TopicFacts, brokers: int) -> Iterator[_Judgement]:
    copies, wanted = topic.replication_factor, topic.wanted_replication_factor
    if copies < wanted:
        yield (
            "topic-copies",
            "problem",
            f"kept {_times(copies)}; kafka.replication_factor is {wanted}",
            "add replicas with kafka-reassign-partitions.sh, or correct the setting",
        )
    elif copies == 1 and brokers >= SEVERAL_BROKERS:
        yield (
            "topic-copies",
            "problem",
            f"kept once in a cluster of {brokers} brokers: if one is lost, records are",
            "set kafka.replication_factor to 3 before the topics are made; "
            "for topics that exist, kafka-reassign-partitions.sh adds replicas",
        )


def _in_sync(topic: TopicFacts) -> Iterator[_Judgement]:
    copies, in_sync = topic.replication_factor, topic.in_sync
    least = topic.config.get(_MIN_IN_SYNC, "")
    needed = int(least) if least.isdigit() else 1
    if in_sync < needed:
        yield (
            "topic-in-sync",
            "problem",
            f"takes no records: in sync are {in_sync} of {copies} copies, and {_MIN_IN_SYNC} is {needed}",
            "see why brokers are away or behind",
        )
    elif in_sync < copies:
        yield (
            "topic-in-sync",
            "note",
            f"in sync are {in_sync} of {copies} copies: a broker is away or behind",
            "",
        )
    if 1 < copies <= needed:
        yield (
            "topic-min-insync",
            "problem",
            f"{_MIN_IN_SYNC} is {needed} of {copies} copies: one broker away stops all writing",
            _remedy(copies - 1),
        )
    elif copies >= SEVERAL_BROKERS and least == "1":
        yield (
            "topic-min-insync",
            "problem",
            f"{_MIN_IN_SYNC} is 1: the loss of a broker may lose records that were acknowledged",
            _remedy(2),
        )


def _remedy(least: int) -> str:
    # Clusters formatted by Kafka 4.1 or newer no longer read this from the brokers' configuration file.
    return (
        "kafka-configs.sh --alter --entity-type brokers --entity-default "
        f"--add-config {_MIN_IN_SYNC}={least}; "
        "a change in server.properties does nothing on a cluster formatted by Kafka 4.1 or newer"
    )


def _times(copies: int) -> str:
    return "once" if copies == 1 else f"{copies} times"
