"""The watch of the advice outlives a login that cannot be read."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from clickhouse_connect.driver.client import Client

from pipeline.clickhouse import migrations
from pipeline.local import advice_watch
from pipeline.local.advice_watch import AdviceWatch
from pipeline.local.clickhouse.accounts import Account
from pipeline.local.clickhouse.embedded import EmbeddedStore
from schemas.settings import ClickHouse, Settings

SECONDS = 120.0
ACCOUNT = Account("writer", "a password", readonly=False)


def wait_for(condition: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < until, what
        time.sleep(0.05)


@pytest.mark.night
def test_advice_comes_when_the_password_file_can_be_read_again(
    tmp_path: Path, free_port: Callable[..., int], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = EmbeddedStore(tmp_path / "store", free_port(), writer=ACCOUNT)
    store.start()
    file = tmp_path / "password"
    login = ClickHouse(
        url=store.url,
        database="watched",
        username=ACCOUNT.name,
        password_file=str(file),
        timeout_seconds=SECONDS,
    )
    file.write_text(ACCOUNT.password)
    migrations.apply(Settings(clickhouse=login))
    file.unlink()
    tried = 0
    connect = advice_watch.connect

    def counted(of: ClickHouse) -> Client:
        nonlocal tried
        tried += 1
        return connect(of)

    monkeypatch.setattr(advice_watch, "connect", counted)
    watch = AdviceWatch(login, 900, 0.1)
    try:
        wait_for(lambda: tried > 1, "it asked no more after the first failure")
        assert watch.latest is None
        file.write_text(ACCOUNT.password)
        wait_for(lambda: watch.latest is not None, "no advice after the file was there again")
    finally:
        watch.close()
        store.kill()
