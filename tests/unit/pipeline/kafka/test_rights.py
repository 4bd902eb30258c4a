"""The rights of each process follow from the catalogue of topics, and leave nobody out."""

from __future__ import annotations

from pipeline.generated.topics_file import load_topics
from pipeline.kafka.rights import AGENTS, CHOICES, CONNECTORS, INDEXES, RECORDING, RECORDING_INDEXES, roles

TOPICS = load_topics()
ROLES = {role.command: role for role in roles(TOPICS, topic_prefix="p", group="g")}


def operations(command: str, name: str) -> set[str]:
    return {right.operation for right in ROLES[command].rights if right.name == name}


def test_everybody_that_the_catalogue_names_has_a_role() -> None:
    named = {who for topic in TOPICS.values() for who in (*topic.producers, *topic.consumers)}
    assert named == {CONNECTORS, INDEXES, RECORDING_INDEXES, *AGENTS.values(), "downstream services"}


def test_who_writes_may_write_and_who_reads_may_read() -> None:
    commands = {CONNECTORS: "kvlens connect", INDEXES: "kvlens index", RECORDING_INDEXES: RECORDING}
    commands |= {name: f"kvlens work, agent {agent}" for agent, name in AGENTS.items()}
    for topic in TOPICS.values():
        for who, command in commands.items():
            allowed = operations(command, f"p.{topic.name}")
            assert ("Write" in allowed) == (who in topic.producers)
            assert ("Read" in allowed) == (who in topic.consumers)


def test_a_worker_sees_every_topic_and_owns_its_group_and_transactions() -> None:
    for agent in AGENTS:
        command = f"kvlens work, agent {agent}"
        assert all(operations(command, f"p.{topic.name}") for topic in TOPICS.values())
        assert operations(command, f"g.{agent}") == {"Read"}
        [transactions] = [right for right in ROLES[command].rights if right.resource == "transactional id"]
        assert transactions.prefix
        assert f"g.{agent}-p.events.v1-0".startswith(transactions.name)


def test_choices_are_committed_by_whoever_runs_the_fleet_agent() -> None:
    members = [name for name in ROLES if "Read" in operations(name, f"g.{CHOICES}")]
    assert members == ["kvlens work, agent fleet"]
    assert [name for name in ROLES if "Write" in operations(name, "p.choices.v1")] == [RECORDING]


def test_no_reader_may_write() -> None:
    for command in ("kvlens verify", "kvlens doctor", "kvlens index"):
        assert {right.operation for right in ROLES[command].rights} <= {"Read", "Describe", "DescribeConfigs"}
