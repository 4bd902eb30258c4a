"""The page beyond this machine: nobody sees it without the token; below a path of another server."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from aiohttp import ClientSession, web
from playwright.sync_api import expect

from tests.support.inputs.board_rows import HOUR
from tests.system.browser.tabs import Open, Served, serve

RANGE = f"from={int(HOUR.timestamp())}&to={int(HOUR.timestamp()) + 3599}&refresh=0"
TOKEN = "correct horse battery staple"


@pytest.fixture
def guarded(served: Served, free_port: Callable[[], int], tmp_path: Path) -> Iterator[Served]:
    """The same store behind a page that every machine may reach."""
    file = tmp_path / "token"
    file.write_text(TOKEN + "\n")
    server = serve(
        served.settings,
        free_port(),
        tmp_path,
        {"KVLENS_PAGE__HOST": "0.0.0.0", "KVLENS_PAGE__TOKEN_FILE": str(file)},
    )
    yield server
    server.stop()


@pytest.mark.night
def test_nobody_sees_figures_without_the_token(guarded: Served, visit: Open) -> None:
    tab = visit(guarded.origin, quiet=False)
    tab.page.goto(f"{guarded.origin}/?board=replica&{RANGE}")
    assert tab.page.title() == "kvlens: log in"
    for path in ("api/boards", "api/choices", "api/findings", f"api/panels/fleet-replicas?{RANGE}"):
        assert tab.page.request.get(f"{guarded.origin}/{path}").status == 401
    tab.page.fill("#token", "correct horse battery stable")
    tab.page.get_by_role("button", name="Log in").click()
    assert tab.page.locator(".problem").text_content() == "This is not the token."
    tab.page.fill("#token", TOKEN)
    tab.page.get_by_role("button", name="Log in").click()
    tab.settled()
    assert tab.page.url == f"{guarded.origin}/?board=replica&{RANGE}"
    assert tab.page.locator("#replica-occupancy .sr").count() == 1
    (cookie,) = tab.page.context.cookies()
    assert (cookie["httpOnly"], cookie["sameSite"], cookie["secure"]) == (True, "Lax", False)
    assert TOKEN not in cookie["value"]
    tab.page.context.clear_cookies()
    tab.page.click("#now")
    expect(tab.page).to_have_title("kvlens: log in")
    tab.shot("login")


def test_a_page_for_other_machines_without_a_token_is_refused_in_one_line(
    free_port: Callable[[], int], tmp_path: Path
) -> None:
    environment = {
        **os.environ,
        "KVLENS_CLICKHOUSE__URL": f"http://127.0.0.1:{free_port()}",
        "KVLENS_PAGE__HOST": "0.0.0.0",
        "KVLENS_PAGE__PORT": str(free_port()),
        "PYTHONPATH": str(Path.cwd()),
    }
    refused = subprocess.run(
        [sys.executable, "-m", "pipeline.cli.main", "serve"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert refused.returncode == 1
    assert refused.stderr == (
        "kvlens: page.host 0.0.0.0 can be reached from other machines: name a file with a token in "
        "KVLENS_PAGE__TOKEN_FILE (or set page.token), or let it listen on 127.0.0.1\n"
    )


@pytest.fixture
def proxied(served: Served, free_port: Callable[[], int]) -> Iterator[str]:
    """The page below the path of another server, which passes on what follows it."""
    port = free_port()
    loop = asyncio.new_event_loop()

    async def passed(request: web.Request) -> web.Response:
        rest = request.rel_url.raw_path_qs.removeprefix("/tools/kvlens")
        async with ClientSession() as client, client.get(served.origin + rest) as answer:
            return web.Response(
                body=await answer.read(), status=answer.status, content_type=answer.content_type
            )

    async def start() -> web.AppRunner:
        application = web.Application()
        application.router.add_get("/tools/kvlens/{rest:.*}", passed)
        runner = web.AppRunner(application)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port).start()
        return runner

    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    runner = asyncio.run_coroutine_threadsafe(start(), loop).result(10)
    yield f"http://127.0.0.1:{port}/tools/kvlens"
    asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result(10)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(60)


@pytest.mark.night
def test_the_page_works_below_a_path_of_another_server(proxied: str, visit: Open) -> None:
    """The tab fails for each request that leaves the path."""
    tab = visit(proxied)
    tab.open(f"board=fleet&{RANGE}")
    tab.page.locator("#fleet-replicas").get_by_role("link", name="b").click()
    expect(tab.page).to_have_url(f"{proxied}/?board=replica&{RANGE}&replica=b")
    tab.settled()
    tab.page.click(".brand")
    expect(tab.page).to_have_url(f"{proxied}/?board=fleet&range=3600&refresh=10")
