"""Statements serve all who ask, dear ones panels and ranges that move on, too; nobody's are not run."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec
import pytest

from pipeline.dashboards.boards.advice import ANSWER, FINDINGS
from pipeline.dashboards.page.answers import AT_ONCE, Answers
from pipeline.dashboards.page.question import Question
from pipeline.errors import StoreBusy, StoreUnavailable
from schemas.settings import Settings
from tests.support.inputs.board_rows import HOUR, PANEL_SECONDS
from tests.support.suite.night import first_by_day

START = int(HOUR.timestamp())
WHOLE = Question(START, START + 3599)


class CountedAnswers(Answers):
    """The real ones, which note what they had the store run, and run it while the door is open.

    The hour's rows do not change, so the store itself is asked a dear statement once for all tests.
    """

    known: ClassVar[dict[str, tuple[tuple[str, ...], list[tuple[Any, ...]]]]] = {}

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings.clickhouse, PANEL_SECONDS)
        self.ran: list[str] = []
        self.door = threading.Event()
        self.door.set()

    def _run(self, sql: str, parameters: Mapping[str, Any]) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
        self.ran.append(sql)
        assert self.door.wait(120)
        question = repr((sql, sorted(parameters.items())))
        if question not in self.known:
            self.known[question] = super()._run(sql, parameters)
        return self.known[question]

    async def until_running(self, statements: int) -> None:
        deadline = time.monotonic() + 120
        while len(self.ran) < statements:
            assert time.monotonic() < deadline, self.ran
            await asyncio.sleep(0.02)


async def begun(*tasks: asyncio.Future[Any]) -> None:
    """Give tasks that were made just now the turns in which they come to wait."""
    for _ in range(20):
        await asyncio.sleep(0)
    assert not any(task.done() for task in tasks)


@pytest.fixture(scope="module")
def settings(hour: Settings) -> Settings:
    return hour


@pytest.mark.parametrize("models", first_by_day([(), ("m",), ("nobody",)]), ids=str)
async def test_panels_that_share_a_statement_show_what_their_own_would(
    settings: Settings, models: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Not how long an answer is kept is of interest, and a busy machine needs longer for one.
    monkeypatch.setattr("pipeline.dashboards.page.answers.FRESH_SECONDS", 600.0)
    answers, question = CountedAnswers(settings), WHOLE._replace(models=models)
    both = [(panel, await answers.of_panel(panel, question)) for panel in (ANSWER, FINDINGS)]
    for panel, shared in both:
        own = await answers.of(panel.id, panel.sql, question)
        assert (shared.columns, shared.times) == (own.columns, own.times)
        assert own.names in ((), shared.names)
        assert bool(shared.columns) == ("nobody" not in question.models)
    assert len(answers.ran) == 3
    answers.close()


@pytest.mark.parametrize(
    "other",
    first_by_day(
        [
            WHOLE._replace(start=WHOLE.start + 60, end=WHOLE.end + 60),
            WHOLE._replace(start=WHOLE.start - 10, end=WHOLE.end - 10),
            WHOLE._replace(start=WHOLE.start + 10),
            WHOLE._replace(models=("m",)),
        ]
    ),
    ids=["later", "earlier", "shorter", "of one model"],
)
async def test_a_dear_answer_serves_a_range_that_moves_on_for_a_while(
    settings: Settings, other: Question
) -> None:
    answers = CountedAnswers(settings)
    first = await answers.of_panel(ANSWER, WHOLE)
    moved = WHOLE._replace(start=WHOLE.start + 59, end=WHOLE.end + 59)
    assert await answers.of_panel(ANSWER, moved) == first
    assert len(answers.ran) == 1
    await answers.of_panel(ANSWER, other)
    assert len(answers.ran) == 2
    answers.close()


async def test_what_nobody_waits_for_any_more_is_not_begun(settings: Settings) -> None:
    answers = CountedAnswers(settings)
    answers.door.clear()
    slow = [
        asyncio.ensure_future(answers.of(f"slow-{number}", "SELECT 0", WHOLE)) for number in range(AT_ONCE)
    ]
    await answers.until_running(AT_ONCE)
    left = [asyncio.ensure_future(answers.of("left", "SELECT 1", WHOLE)) for _ in range(2)]
    one_left = asyncio.ensure_future(answers.of("wanted", "SELECT 2", WHOLE))
    wanted = asyncio.ensure_future(answers.of("wanted", "SELECT 2", WHOLE))
    await begun(*left, one_left, wanted)
    for task in (*left, one_left):
        task.cancel()
    await asyncio.wait([*left, one_left])
    answers.door.set()
    assert (await wanted).columns == [[2]]
    await asyncio.gather(*slow)
    assert sorted(answers.ran) == [*["SELECT 0"] * AT_ONCE, "SELECT 2"]
    # Who asks again is answered.
    assert (await answers.of("left", "SELECT 1", WHOLE)).columns == [[1]]
    answers.close()


async def test_what_runs_is_finished_and_kept_for_who_comes_back(settings: Settings) -> None:
    answers = CountedAnswers(settings)
    answers.door.clear()
    left = asyncio.ensure_future(answers.of("slow", "SELECT 0, 3", WHOLE))
    await answers.until_running(1)
    left.cancel()
    await asyncio.wait([left])
    back = asyncio.ensure_future(answers.of("slow", "SELECT 0, 3", WHOLE))
    await begun(back)
    answers.door.set()
    assert (await back).columns == [[0], [3]]
    assert len(answers.ran) == 1
    answers.close()


async def test_the_store_stops_what_takes_longer_than_it_may(settings: Settings) -> None:
    answers = Answers(settings.clickhouse, 0.2)
    slow = "SELECT sleepEachRow(0.1) FROM numbers(100) SETTINGS max_block_size = 1"
    with pytest.raises(StoreUnavailable, match=r"shorter range, or raise page\.panel_seconds"):
        await answers.of("slow", slow, WHOLE)
    answers.close()


async def test_a_store_that_has_too_much_to_do_says_of_what(settings: Settings) -> None:
    """The engine's own codes: of time, of memory, of turns."""
    answers = Answers(settings.clickhouse, PANEL_SECONDS)
    large = "SELECT groupArray(number) FROM numbers(10000000) SETTINGS max_memory_usage = 1000"
    with pytest.raises(StoreBusy) as refused:
        await answers.of("large", large, WHOLE)
    assert refused.value.lacks == "memory"
    assert "hile executing" not in str(refused.value)
    other = asyncio.ensure_future(answers.of("slow", "SELECT sleep(3)", WHOLE))
    alone = "SELECT 1 SETTINGS max_concurrent_queries_for_all_users = 1"
    refused_at = ""
    while not refused_at and not other.done():
        try:
            await answers.of(f"alone {time.monotonic()}", alone, WHOLE)
        except StoreBusy as error:
            refused_at = error.lacks
    assert refused_at == "turns"
    await other
    answers.close()
    hasty = Answers(settings.clickhouse, 0.2)
    slow = "SELECT sleepEachRow(0.1) FROM numbers(100) SETTINGS max_block_size = 1"
    with pytest.raises(StoreBusy) as late:
        await hasty.of("slow", slow, WHOLE)
    assert (late.value.lacks, late.value.seconds) == ("time", 0.2)
    assert late.value.heals
    hasty.close()


async def test_a_panel_may_take_longer_than_other_statements(settings: Settings) -> None:
    hasty = msgspec.structs.replace(settings.clickhouse, timeout_seconds=1.0)
    answers = Answers(hasty, PANEL_SECONDS)
    assert (await answers.of("slow", "SELECT sleep(2.5), 1", WHOLE)).columns == [[0], [1]]
    answers.close()
