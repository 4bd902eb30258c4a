"""What keeps the page from asking ClickHouse at all stands on the page, not in a log."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp

from pipeline.dashboards.page.answers import Answers
from pipeline.dashboards.page.findings import Findings
from pipeline.dashboards.page.server import Page
from schemas.settings import ClickHouse


async def _nothing() -> dict[str, Any]:
    return {}


async def test_a_password_file_that_cannot_be_read_is_named(
    tmp_path: Path, free_port: Callable[[], int]
) -> None:
    store = ClickHouse(url="http://127.0.0.1:1", password_file=str(tmp_path / "missing"))
    page = Page(Answers(store, 1.0), "127.0.0.1", free_port(), findings=Findings(_nothing))
    await page.start()
    async with aiohttp.ClientSession() as client, client.get(f"{page.url}api/choices") as answer:
        assert answer.status == 503
        assert "clickhouse.password_file: No such file" in (await answer.json())["problem"]
    await page.stop()
