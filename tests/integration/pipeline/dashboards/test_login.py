"""Who may see the page's figures, and where it may listen."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import aiohttp
import pytest

from connectors.process.login import COOKIE, WRONG_SECONDS, TokenMissing, TokenShort, check_token
from pipeline.dashboards.page.answers import Answers
from pipeline.dashboards.page.findings import Findings
from pipeline.dashboards.page.server import Page
from schemas.settings import Settings
from tests.support.inputs.board_rows import PANEL_SECONDS

TOKEN = "0123456789abcdef"


async def healthy() -> dict[str, Any]:
    return {"verdict": "healthy", "at": 0.0, "findings": []}


@pytest.fixture
async def origin(bare: Settings, free_port: Callable[[], int]) -> AsyncIterator[str]:
    answers = Answers(bare.clickhouse, PANEL_SECONDS)
    page = Page(answers, "127.0.0.1", free_port(), findings=Findings(healthy), token=TOKEN)
    await page.start()
    yield page.url
    await page.stop()


@pytest.mark.parametrize(
    ("path", "status"),
    [("livez", 200), ("static/page.css", 200), ("api/boards", 401), ("api/findings", 401), ("nothing", 401)],
)
async def test_figures_need_a_login(origin: str, path: str, status: int) -> None:
    async with aiohttp.ClientSession() as client, client.get(origin + path) as answer:
        assert answer.status == status


async def test_the_page_itself_asks_for_the_token(origin: str) -> None:
    jar = aiohttp.CookieJar(unsafe=True)  # which keeps cookies of an address without a name, as browsers do
    async with aiohttp.ClientSession(cookie_jar=jar) as client:
        async with client.get(f"{origin}?board=model") as answer:
            assert 'name="token"' in await answer.text()
        sent = {"token": f" {TOKEN}\n"}
        async with client.post(f"{origin}?board=model", data=sent, allow_redirects=False) as answer:
            assert (answer.status, answer.headers["Location"]) == (303, "./?board=model")
            cookie = answer.headers["Set-Cookie"]
            assert {"HttpOnly", "SameSite=Lax", "Path=/"} <= set(cookie.split("; "))
            assert "Secure" not in cookie
        async with client.get(f"{origin}api/boards") as answer:
            assert answer.status == 200
        async with client.get(origin) as answer:
            assert 'id="board"' in await answer.text()


async def test_behind_https_the_cookie_stays_there(origin: str) -> None:
    headers = {"X-Forwarded-Proto": "https"}
    async with (
        aiohttp.ClientSession() as client,
        client.post(origin, data={"token": TOKEN}, headers=headers, allow_redirects=False) as answer,
    ):
        assert "Secure" in answer.headers["Set-Cookie"].split("; ")


async def test_scripts_send_the_token(origin: str) -> None:
    async with aiohttp.ClientSession() as client:
        for sent, status in (
            (f"Bearer {TOKEN}", 200),
            ("Bearer wrong", 401),
            (f"Basic {TOKEN}", 401),
            ("é", 401),
        ):
            async with client.get(f"{origin}api/boards", headers={"Authorization": sent}) as answer:
                assert answer.status == status, sent


async def test_wrong_tokens_are_answered_one_after_the_other(origin: str) -> None:
    async def wrong(client: aiohttp.ClientSession, data: dict[str, str]) -> int:
        async with client.post(origin, data=data) as answer:
            assert "This is not the token." in await answer.text()
            assert "Set-Cookie" not in answer.headers
            return answer.status

    began = time.monotonic()
    async with aiohttp.ClientSession() as client:
        tried = [wrong(client, data) for data in ({"token": TOKEN[:-1]}, {"token": ""}, {})]
        assert await asyncio.gather(*tried) == [401, 401, 401]
    assert time.monotonic() - began >= 3 * WRONG_SECONDS


@pytest.mark.parametrize("forged", ["", "9999999999.", "9999999999.0000", "x.y", "1.{signature}", "é.é"])
async def test_a_cookie_that_the_page_did_not_give_lets_nobody_in(origin: str, forged: str) -> None:
    async with aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as client:
        async with client.post(origin, data={"token": TOKEN}, allow_redirects=False) as answer:
            given = answer.cookies[COOKIE].value
        until, _, signature = given.partition(".")
        for value, status in (
            (given, 200),
            (f"{int(until) + 1}.{signature}", 401),
            (forged.format(signature=signature), 401),
        ):
            headers = {"Cookie": f"{COOKIE}={value}"}
            async with client.get(f"{origin}api/boards", headers=headers) as answer:
                assert answer.status == status, value


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_this_machine_alone_needs_no_token(host: str) -> None:
    check_token(host, "")


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "kvlens.example"])
def test_where_other_machines_reach_it_the_page_needs_a_token(host: str) -> None:
    check_token(host, TOKEN)
    with pytest.raises(TokenMissing, match=f"page.host {host} can be reached from other machines"):
        check_token(host, "")


def test_a_token_that_can_be_guessed_is_refused() -> None:
    with pytest.raises(TokenShort, match="fewer than 16 characters") as caught:
        check_token("127.0.0.1", TOKEN[:-1])
    assert TOKEN[:-1] not in str(caught.value)


async def test_the_doctor_looks_once_for_all_who_ask() -> None:
    looks = 0

    async def look() -> dict[str, Any]:
        nonlocal looks
        looks += 1
        await asyncio.sleep(0)
        if looks == 1:
            raise OSError("no look")
        return {"verdict": "healthy", "at": float(looks), "findings": []}

    findings = Findings(look)
    with pytest.raises(OSError, match="no look"):
        await findings.newest()
    found = await asyncio.gather(findings.newest(), findings.newest(), findings.newest())
    assert found == 3 * [{"verdict": "healthy", "at": 2.0, "findings": []}]
    assert await findings.newest() == found[0]
