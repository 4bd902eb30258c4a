"""A password in a file: the client goes on with the one that the file has now."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from connectors.process.login_files import RENEWED, UNUSABLE
from connectors.process.tls_files import CertificateUnreadable
from connectors.process.waiting import Waiting
from pipeline.clickhouse.client import connect, store_unavailable
from pipeline.errors import StoreUnavailable
from pipeline.local.clickhouse.accounts import Account
from pipeline.local.clickhouse.embedded import EmbeddedStore
from schemas.settings import ClickHouse


class Guarded:
    """A store whose password can be changed, and the file that a client reads it from."""

    def __init__(self, directory: Path, free_port: Callable[[], int]) -> None:
        self.file = directory / "password"
        self.file.write_text("first\n")
        self._directory = directory / "store"
        self._port = free_port()
        self.store = self._started("first")

    @property
    def settings(self) -> ClickHouse:
        return ClickHouse(url=self.store.url, username="kvlens", password_file=str(self.file))

    def change(self, password: str) -> None:
        self.store.kill()
        self.store = self._started(password)

    def _started(self, password: str) -> EmbeddedStore:
        store = EmbeddedStore(self._directory, self._port, writer=Account("kvlens", password, readonly=False))
        store.start()
        return store


@pytest.fixture
def guarded(tmp_path: Path, free_port: Callable[[], int]) -> Iterator[Guarded]:
    guarded = Guarded(tmp_path, free_port)
    yield guarded
    guarded.store.kill()


def count(counter: object) -> float:
    return float(counter.labels("password_file")._value.get())  # type: ignore[attr-defined]


def test_a_client_goes_on_with_the_password_that_the_file_has_now(guarded: Guarded) -> None:
    client = connect(guarded.settings)
    renewed, unusable = count(RENEWED), count(UNUSABLE)
    assert client.query("SELECT 1").result_rows == [(1,)]
    guarded.change("second, with ümlaut")
    with (
        pytest.raises(StoreUnavailable, match="AUTHENTICATION_FAILED") as raised,
        store_unavailable(guarded.settings),
    ):
        client.query("SELECT 1")
    assert raised.value.heals
    guarded.file.write_text("second, with ümlaut")
    assert client.query("SELECT 2").result_rows == [(2,)]
    assert (count(RENEWED), count(UNUSABLE)) == (renewed + 1, unusable)
    # What cannot be used changes nothing.
    guarded.file.write_text("")
    assert client.query("SELECT 3").result_rows == [(3,)]
    guarded.file.unlink()
    assert client.query("SELECT 4").result_rows == [(4,)]
    assert (count(RENEWED), count(UNUSABLE)) == (renewed + 1, unusable + 2)
    client.close()
    with pytest.raises(CertificateUnreadable) as missing:
        connect(guarded.settings)
    assert str(missing.value) == (
        f"cannot use {guarded.file} of clickhouse.password_file: No such file or directory"
    )


async def test_who_waits_for_the_store_goes_on_when_the_file_has_the_right_password(guarded: Guarded) -> None:
    guarded.file.write_text("wrong")
    told: list[str] = []

    def tell(line: str) -> None:
        told.append(line)
        guarded.file.write_text("first")

    async def attempt() -> None:
        client = await asyncio.to_thread(connect, guarded.settings)
        client.close()

    await Waiting(tell).until(attempt)
    [line] = told
    assert "check clickhouse.username, its password" in line
    assert "wrong" not in line
