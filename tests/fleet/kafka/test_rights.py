"""On three secured brokers the documented rights are enough, and each one that is missing is named."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from pipeline.kafka.rights import Right
from tests.fleet.kafka.installation import RIGHTS, Installation
from tests.support.processes import Started

Say = Callable[[str], None]
WAITS = '"waiting"'


def rights_of(*users: str) -> list[object]:
    return [
        pytest.param(user, right, id=f"{user}-{right.operation}-{right.name}")
        for user in users
        for right in RIGHTS[user]
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
