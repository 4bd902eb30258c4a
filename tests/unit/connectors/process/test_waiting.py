from __future__ import annotations

import pytest

from connectors.process.errors import OperatorError
from connectors.process.waiting import TELL_SECONDS, Waiting


class Told(OperatorError):
    what: str
    line = "{what}"


class Absent(Told):
    heals = True


class Refused(Told):
    heals = True


class Wrong(Told):
    """Waiting cannot heal it."""


class Step:
    """Fails with each of the errors, one a try, then succeeds."""

    def __init__(self, *errors: OperatorError) -> None:
        self.errors = list(errors)
        self.now = 0.0
        self.told: list[tuple[float, str]] = []
        self.causes: list[str | None] = []
        self.waiting = Waiting(self._tell, lambda: self.now, self._sleep)

    def _tell(self, line: str) -> None:
        self.told.append((self.now, line))

    async def _sleep(self, seconds: float) -> None:
        self.causes.append(self.waiting.cause)
        self.now += seconds

    async def attempt(self) -> str:
        if self.errors:
            raise self.errors.pop(0)
        return "done"


async def test_what_stays_away_is_told_at_once_and_once_a_minute_until_it_comes() -> None:
    tries = int(2.5 * TELL_SECONDS / Absent.again_seconds)
    step = Step(*(Absent(f"no broker, try {number}") for number in range(tries)))
    assert await step.waiting.until(step.attempt) == "done"
    assert [at for at, _ in step.told] == [0.0, TELL_SECONDS, 2 * TELL_SECONDS]
    assert step.told[0][1] == "no broker, try 0"
    assert step.causes[:2] == ["no broker, try 0", "no broker, try 1"]
    assert step.waiting.cause is None


async def test_another_cause_is_told_at_once() -> None:
    step = Step(Absent("no broker"), Absent("no broker"), Refused("no right"))
    await step.waiting.until(step.attempt)
    assert [line for _, line in step.told] == ["no broker", "no right"]
    # The next step's first error is news again.
    step.errors = [Refused("no right")]
    await step.waiting.until(step.attempt)
    assert [line for _, line in step.told] == ["no broker", "no right", "no right"]


async def test_what_waiting_cannot_heal_is_raised() -> None:
    step = Step(Absent("no broker"), Wrong("wrong password"))
    with pytest.raises(Wrong, match="wrong password"):
        await step.waiting.until(step.attempt)
    assert [line for _, line in step.told] == ["no broker"]
