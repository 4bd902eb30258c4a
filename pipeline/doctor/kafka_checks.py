"""Checks of the broker's side: topics, groups, checkpoints. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from pipeline.doctor.facts import Facts, GroupFacts, KafkaFacts, ReportsFacts, TopicFacts
from pipeline.doctor.finding import Finding
from pipeline.doctor.naming import partitions
from pipeline.doctor.replication_checks import replication_findings
from pipeline.errors import COMPUTE_AGAIN

WAITING_RECORDS = 1000
"""More of them in one partition than a worker handles within a second or two."""
CHECKPOINT_SECONDS = 60.0
"""A partition with records waiting is saved far more often, unless no worker runs or ClickHouse is away."""
SOURCES_NAMED = 20
"""Sources, at most, that a finding names of records set aside, which may name anything."""
BOUND_CONFIG = {"cleanup.policy", "max.message.bytes"}
"""What must be as in the catalogue; the operator chooses everything else."""


def kafka_findings(facts: Facts) -> Iterator[Finding]:
    """Yield what is wrong with topics, groups and checkpoints."""
    kafka = facts.kafka
    if kafka.unavailable is not None:
        yield Finding(
            "kafka-unavailable",
            "problem",
            f"Kafka at {kafka.address} cannot be used: {kafka.unavailable}",
            "check kafka.bootstrap_servers, the credentials, and that it runs",
        )
        return
    for what, reason in kafka.unanswered.items():
        yield Finding(
            "kafka-unanswered",
            "unknown",
            f"cannot look at {what}: {reason}",
            "check the rights of this user, or ask again with a longer --timeout",
        )
    yield from _topics(kafka)
    yield from _made_again(kafka)
    yield from replication_findings(kafka)
    for group in kafka.groups:
        yield from _group(group, facts.at)
    if kafka.reports is not None:
        yield from _reports(kafka.reports)
    yield from _set_aside(kafka)


def _reports(reports: ReportsFacts) -> Iterator[Finding]:
    if not reports.late:
        yield Finding(
            "reports-topic-missing",
            "problem",
            f"lmcache.topic {reports.topic} does not exist",
            "set it to the topic that LMCache's servers write to, or start one of them, which makes it",
        )
    late = {number: count for number, count in reports.late.items() if count}
    if late:
        yield Finding(
            "reports-unread",
            "problem",
            f"{sum(late.values()):,} records of {reports.topic} that are older than a minute are not read by "
            f"{reports.group}",
            "start `kvlens connect` with shard 0; if it runs, its log says why it does not read this topic",
            partitions(late),
        )


def _set_aside(kafka: KafkaFacts) -> Iterator[Finding]:
    if not kafka.set_aside:
        return
    reasons = Counter(one.reason for one in kafka.set_aside)
    counted = ", ".join(f"{reason} {count:,}" for reason, count in sorted(reasons.items()))
    yield Finding(
        "records-set-aside",
        "problem",
        f"{len(kafka.set_aside):,} records of the last hour cannot be applied ({counted}); "
        f"the first is {kafka.set_aside[0].place}",
        "find who writes them, and who may (docs/operations.md, records set aside)",
        tuple(sorted({one.source for one in kafka.set_aside if one.source})[:SOURCES_NAMED]),
    )


def _topics(kafka: KafkaFacts) -> Iterator[Finding]:
    hidden = tuple(topic.name for topic in kafka.topics if topic.hidden)
    if hidden:
        yield Finding(
            "topic-hidden",
            "unknown",
            "this user may not see topics, if they exist",
            "grant Describe (docs/acls.md)",
            subjects=hidden,
        )
    missing = tuple(topic.name for topic in kafka.topics if not topic.partitions and not topic.hidden)
    if missing:
        yield Finding(
            "topic-missing", "problem", "topics do not exist", "run `kvlens topics apply`", subjects=missing
        )
    for topic in kafka.topics:
        if topic.partitions and topic.partitions != topic.wanted_partitions:
            yield Finding(
                "topic-partitions",
                "problem",
                f"has {topic.partitions} partitions instead of {topic.wanted_partitions}",
                "state is bound to partition numbers: take the log to another kafka.topic_prefix with "
                "`kvlens topics copy` (docs/maintenance.md, more partitions), or delete it and begin again",
                (topic.name,),
            )
        yield from _config(topic)


def _made_again(kafka: KafkaFacts) -> Iterator[Finding]:
    saved = kafka.saved_topics
    found = tuple(
        topic.name
        for topic in kafka.topics
        if topic.id and saved.get(topic.name) and saved[topic.name] != topic.id
    )
    if found:
        yield Finding(
            "topic-made-again",
            "problem",
            "topics were deleted and made again, and the checkpoints are of the old ones: workers and "
            "indexes do not go on",
            COMPUTE_AGAIN,
            found,
        )


def _config(topic: TopicFacts) -> Iterator[Finding]:
    for key, wanted in sorted(topic.wanted_config.items()):
        found = topic.config.get(key)
        if found is None or found == wanted:
            continue
        if key == "max.message.bytes" and found.isdigit() and int(found) > int(wanted):
            continue
        bound = key in BOUND_CONFIG
        yield Finding(
            "topic-config",
            "problem" if bound else "note",
            f"{key} is {found}; kvlens creates the topic with {wanted}",
            "set it back with your Kafka tools" if bound else "",
            (topic.name,),
        )


def _group(group: GroupFacts, at: float) -> Iterator[Finding]:
    if not group.members:
        yield Finding(
            "no-worker",
            "problem",
            f"no worker reads {group.topic}",
            "start `kvlens work`; if it runs, its log says why it does not join",
            (group.name,),
        )
    behind = {number: count for number, count in group.waiting.items() if count > WAITING_RECORDS}
    if behind:
        yield Finding(
            "consumer-lag",
            "problem",
            f"{group.waiting_in_words()} records of {group.topic} wait for {group.name}",
            "if the number keeps growing, run more workers (up to the number of partitions) or find "
            "what slows them",
            partitions(behind),
        )
    # A partition that was idle is saved when its first record waits; a new one was never saved before.
    ages = {
        number: at - max(times)
        for number, count in group.waiting.items()
        if count and (times := [of[number] for of in (group.saved_at, group.waiting_since) if number in of])
    }
    late = {number: age for number, age in ages.items() if age > CHECKPOINT_SECONDS}
    if late and not group.rare_checkpoints:
        yield Finding(
            "checkpoint-old",
            "problem",
            f"records wait, but {group.name} has saved none for {max(late.values()):.0f} s",
            "look at the worker's log: ClickHouse may be away, or the worker makes no progress",
            partitions(late),
        )
