"""The page's server: what it refuses, what it sends, and that no browser can make it run SQL."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from pipeline.dashboards.page.answers import Answers
from pipeline.dashboards.page.findings import Findings
from pipeline.dashboards.page.question import POINTS, STEPS, BadQuestion, Question, parse
from pipeline.dashboards.page.server import STATIC, Page
from schemas.settings import ClickHouse, Settings
from tests.support.inputs.board_rows import HOUR, PANEL_SECONDS

START = int(HOUR.timestamp())
VENDORED = {
    "uPlot.iife.min.js": "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
    "uPlot.min.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
    "uPlot.LICENSE": "8f989229699b4fe2f1a0432d0e9edc338a8a911e250e2d1b01ecd770a5f5b1bd",
}


@pytest.mark.parametrize(
    ("fields", "parameter"),
    [
        ({}, "from"),
        ({"from": ["1"], "to": ["x"]}, "to"),
        ({"from": ["1", "2"], "to": ["3"]}, "from"),
        ({"from": ["3"], "to": ["3"]}, "from"),
        ({"from": ["-1"], "to": ["3"]}, "from"),
        ({"from": ["0"], "to": ["3000000000"]}, "from"),
        ({"from": ["0"], "to": ["9999999999"]}, "to"),
        ({"from": ["1"], "to": ["2"], "model": ["m" * 201]}, "model"),
        ({"from": ["1"], "to": ["2"], "replica": [str(number) for number in range(201)]}, "replica"),
    ],
)
def test_bad_questions_are_refused_with_the_parameter(fields: dict[str, list[str]], parameter: str) -> None:
    with pytest.raises(BadQuestion) as caught:
        parse(fields)
    assert caught.value.parameter == parameter


@given(st.dictionaries(st.text(max_size=8), st.lists(st.text(max_size=12), max_size=3), max_size=5))
def test_any_query_string_is_a_question_or_a_refusal(fields: dict[str, list[str]]) -> None:
    try:
        question = parse(fields)
    except BadQuestion:
        return
    assert question.start < question.end


@given(st.integers(1, 60 * 86400))
def test_a_picture_has_a_bounded_number_of_points(seconds: int) -> None:
    step = Question(0, seconds).step
    assert step in STEPS
    assert seconds / step <= POINTS or step == STEPS[-1]


async def nothing() -> dict[str, Any]:
    return {"verdict": "healthy", "at": 0.0, "findings": []}


@pytest.fixture
async def origin(bare: Settings, free_port: object) -> AsyncIterator[str]:
    answers = Answers(bare.clickhouse, PANEL_SECONDS)
    page = Page(answers, "127.0.0.1", free_port(), findings=Findings(nothing))  # type: ignore[operator]
    await page.start()
    yield page.url
    await page.stop()


async def test_names_are_bound_and_never_become_sql(origin: str) -> None:
    async with aiohttp.ClientSession() as client:
        parameters = {
            "from": START,
            "to": START + 60,
            "replica": "x') OR 1=1 --",
            "model": "'; DROP TABLE sources",
        }
        async with client.get(f"{origin}api/panels/replica-lives", params=parameters) as answer:
            assert answer.status == 200
            assert (await answer.json())["columns"] in ([], [[]] * 11)
        async with client.get(
            f"{origin}api/panels/replica-lives", params={"from": START, "to": START + 60}
        ) as answer:
            assert answer.status == 200


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("api/panels/nothing?from=1&to=2", 404),
        ("api/panels/fleet-sources", 400),
        ("static/../server.py", 404),
        ("static/%2e%2e/server.py", 404),
        ("static/vendor/uPlot.LICENSE", 404),
        ("api/boards", 200),
        ("", 200),
    ],
)
async def test_answers_carry_their_status_and_the_headers(origin: str, path: str, status: int) -> None:
    async with aiohttp.ClientSession() as client, client.get(origin + path) as answer:
        assert answer.status == status
        assert answer.headers["Content-Security-Policy"].startswith("default-src 'self'")
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        if status >= 400:
            assert (await answer.json())["problem"]


async def test_the_browser_never_sees_sql(origin: str) -> None:
    async with aiohttp.ClientSession() as client, client.get(f"{origin}api/boards") as answer:
        assert "SELECT" not in await answer.text()


async def test_a_store_that_is_not_there_is_said_so(free_port: object) -> None:
    dead = Settings(clickhouse=ClickHouse(url=f"http://127.0.0.1:{free_port()}"))  # type: ignore[operator]
    answers = Answers(dead.clickhouse, PANEL_SECONDS)
    page = Page(answers, "127.0.0.1", free_port(), findings=Findings(nothing))  # type: ignore[operator]
    await page.start()
    try:
        path = "api/panels/fleet-sources?from=1&to=2"
        async with aiohttp.ClientSession() as client, client.get(page.url + path) as answer:
            assert answer.status == 503
            assert "check clickhouse.url" in (await answer.json())["problem"]
    finally:
        await page.stop()


async def test_a_panel_for_which_there_was_no_time_says_so_and_no_more(
    bare: Settings, free_port: object
) -> None:
    answers = Answers(bare.clickhouse, 0.001)
    page = Page(answers, "127.0.0.1", free_port(), findings=Findings(nothing))  # type: ignore[operator]
    await page.start()
    try:
        path = f"api/panels/fleet-answer?from={START}&to={START + 60}"
        async with aiohttp.ClientSession() as client, client.get(page.url + path) as answer:
            assert answer.status == 503
            assert await answer.json() == {
                "problem": "This panel took longer than 0.001 s: the store is busy.",
                "busy": True,
            }
    finally:
        await page.stop()


async def test_a_busy_store_hides_no_finding_of_the_look_before() -> None:
    def finding(code: str) -> dict[str, Any]:
        return {"code": code, "severity": "problem", "message": code, "remedy": "", "subjects": []}

    looks = [
        {"verdict": "problems", "at": 100.0, "findings": [finding("source-disconnected"), finding("drift")]},
        {"verdict": "cannot tell", "at": 130.0, "findings": [finding("store-busy"), finding("drift")]},
        {"verdict": "cannot tell", "at": 900.0, "findings": [finding("store-busy")]},
    ]

    async def look() -> dict[str, Any]:
        return looks.pop(0)

    findings = Findings(look)
    shown = []
    for _ in range(3):
        shown.append([(each["code"], each.get("as_of")) for each in (await findings.newest())["findings"]])
        findings._begun = -1e9
    assert shown == [
        [("source-disconnected", None), ("drift", None)],
        [("store-busy", None), ("drift", None), ("source-disconnected", 100.0)],
        [("store-busy", None)],
    ]


async def test_a_look_that_fails_is_told_in_the_form_of_the_page(free_port: object) -> None:
    """And in the log, with where it failed."""

    async def look() -> dict[str, Any]:
        raise ZeroDivisionError("of the doctor")

    answers = Answers(ClickHouse(url="http://127.0.0.1:1"), PANEL_SECONDS)
    page = Page(answers, "127.0.0.1", free_port(), findings=Findings(look))  # type: ignore[operator]
    await page.start()
    try:
        with structlog.testing.capture_logs() as logged:
            async with aiohttp.ClientSession() as client, client.get(page.url + "api/findings") as answer:
                assert answer.status == 500
                assert answer.headers["X-Content-Type-Options"] == "nosniff"
                problem = (await answer.json())["problem"]
    finally:
        await page.stop()
    assert problem == "the page's server failed (ZeroDivisionError); its log says where"
    assert [(each["event"], each["path"], each["exc_info"]) for each in logged] == [
        ("request failed", "/api/findings", True)
    ]


def test_vendored_files_are_the_published_ones() -> None:
    vendor = STATIC / "vendor"
    assert {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in vendor.iterdir()} == VENDORED


def test_no_file_of_the_page_names_another_host() -> None:
    for path in Path(STATIC).rglob("*.*"):
        if path.parent.name == "vendor":
            continue
        text = path.read_text().replace("http://www.w3.org/2000/svg", "")
        assert "http://" not in text, path
        assert "https://" not in text, path
