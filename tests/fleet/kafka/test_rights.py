"""On three secured brokers the documented rights are enough, and each one that is missing is named."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from pipeline.kafka.rights import Right
from tests.fleet.kafka.brokers import ADMIN
from tests.fleet.kafka.installation import COPY, MADE, PREFIX, RIGHTS, Installation
from tests.support.processes import Started

Say = Callable[[str], None]
WAITS = '"waiting"'
COPYING = ("topics", "copy", "--from", PREFIX)
REBUILDING = ("state", "rebuild", "--yes", "--no-wait")


def id_of(right: Right) -> str:
    return f"{right.operation}-{right.name}"


def rights_of(*users: str) -> list[object]:
    return [
        pytest.param(user, right, id=f"{user}-{id_of(right)}") for user in users for right in RIGHTS[user]
    ]


def test_the_documented_rights_are_enough(installation: Installation, say: Say) -> None:
    code, said, _ = installation.run("doctor", "topics", "list")
    assert code == 0
    assert said.count("partitions, 3 replicas") == len(said.splitlines())
    connector, worker = installation.start("connect", "connect"), installation.start("work", "work")
    say(f"fresh {installation.wait_fresh(0.0, 240.0):.0f} s after the start")
    code, said, errors = installation.run("doctor", "doctor", by_certificate=True)
    assert "kafka-unanswered" not in said + errors
    assert code == 0, said + errors
    connector.stop()
    said = installation.verify()
    assert "the tables are what the log says" in said
    worker.stop()
    say(f"verified: {said.count(' equal')} parts equal")


@pytest.mark.parametrize(("user", "right"), rights_of("connect", "work"))
def test_a_process_says_which_right_it_lacks_before_it_begins(
    installation: Installation, user: str, right: Right
) -> None:
    with installation.acls.without(user, right):
        process = installation.start(user, user)
        line = first_of(process, WAITS)
        assert right.name in line
        assert "docs/acls.md" in line
        assert named(right, line), line
        assert process.end() == 0
    assert "Traceback" not in process.said()


@pytest.mark.parametrize(("user", "right"), rights_of("verify", "doctor"))
def test_a_command_says_which_right_it_lacks(installation: Installation, user: str, right: Right) -> None:
    with installation.acls.without(user, right):
        code, said, errors = installation.run(user, user)
    assert code == 2 if user == "verify" else code in (0, 1)
    assert right.name in said + errors
    assert "Traceback" not in errors


def test_who_makes_topics_says_which_right_it_lacks(installation: Installation) -> None:
    made = {"KVLENS_KAFKA__TOPIC_PREFIX": MADE, "KVLENS_KAFKA__PARTITIONS": "1"}
    # In the order in which topics are made: each one that may not be made is still missing.
    for right in RIGHTS["make"]:
        with installation.acls.without("make", right):
            code, said, errors = installation.run("make", "topics", "apply", **made)
        assert code == 1, (right, said, errors)
        assert right.name in errors
        assert named(right, errors), errors
        assert f"{right.name} created" not in said
        assert "Traceback" not in errors
    code, said, errors = installation.run("make", "topics", "apply", **made)
    assert code == 0, errors


@pytest.mark.parametrize("right", RIGHTS["recording"], ids=id_of)
def test_an_index_says_which_right_it_lacks_and_waits_for_it(
    installation: Installation, right: Right
) -> None:
    with installation.acls.without("recording", right):
        process = installation.start("recording", "index", KVLENS_INDEX__CHOICES="true")
        choices = right in RIGHTS["recording"][len(RIGHTS["index"]) :]
        line = first_of(process, "choices wait" if choices else WAITS)
        assert right.name in line
        assert named(right, line), line
    process.wait_said("caught up with the log")
    process.stop()
    assert "Traceback" not in process.said()


@pytest.fixture(scope="module")
def copied(installation: Installation) -> dict[str, str]:
    """The settings of an installation to which the log may be copied."""
    settings = {f"KVLENS_KAFKA__{name.upper()}": value for name, value in COPY.items()}
    settings["KVLENS_KAFKA__PARTITIONS"] = "5"
    code, _, errors = installation.run(ADMIN, "topics", "apply", **settings)
    assert code == 0, errors
    return settings


@pytest.mark.parametrize("right", RIGHTS["copy"], ids=id_of)
def test_who_copies_the_log_says_which_right_it_lacks(
    installation: Installation, copied: dict[str, str], right: Right
) -> None:
    with installation.acls.without("copy", right):
        code, said, errors = installation.run("copy", *COPYING, **copied)
    assert code == 1, said + errors
    assert "copied" not in said
    assert right.name in errors
    assert named(right, errors), errors
    assert "Traceback" not in errors


def test_the_rights_of_who_copies_the_log_are_enough(
    installation: Installation, copied: dict[str, str]
) -> None:
    code, said, errors = installation.run("copy", *COPYING, **copied)
    assert code == 0, errors
    assert "none came meanwhile" in said


@pytest.mark.parametrize("right", RIGHTS["rebuild"], ids=id_of)
def test_who_rebuilds_says_which_right_it_lacks_before_anything_is_discarded(
    installation: Installation, right: Right
) -> None:
    with installation.acls.without("rebuild", right):
        code, said, errors = installation.run("rebuild", *REBUILDING)
    assert code == 1, said + errors
    assert "the log" not in said
    assert right.name in errors
    assert named(right, errors), errors
    assert "Traceback" not in errors


@pytest.mark.parametrize("right", [each for each in RIGHTS["rebuild"] if each.resource == "group"], ids=id_of)
def test_who_may_only_see_a_group_discards_nothing(installation: Installation, right: Right) -> None:
    sees = replace(right, operation="Describe")
    installation.acls.allow("rebuild", [sees])
    try:
        with installation.acls.without("rebuild", right):
            code, said, errors = installation.run("rebuild", *REBUILDING)
    finally:
        installation.acls.take("rebuild", sees)
    assert code == 1, said + errors
    assert "the log" not in said
    assert right.name in errors
    assert named(right, errors), errors


def test_the_rights_of_who_rebuilds_are_enough(installation: Installation) -> None:
    code, said, errors = installation.run("rebuild", *REBUILDING)
    assert code == 0, said + errors
    assert "checkpoint records discarded" in said


def named(right: Right, line: str) -> bool:
    """Whether a line says what is missing: the operation, or that nothing is allowed that shows the topic."""
    alone = right.operation == "Describe" or "this user may not see the topic" in line
    return alone or f"lacks {right.operation}" in line or f"{right.operation} on it" in line


def first_of(process: Started, words: str, seconds: float = 120.0) -> str:
    """Return the first line of its log with these words."""
    deadline = time.monotonic() + seconds
    while True:
        for line in process.said().splitlines():
            if words in line:
                return line
        assert time.monotonic() < deadline, process.said()[-3000:]
        assert process.alive, process.said()[-3000:]
        time.sleep(0.05)
