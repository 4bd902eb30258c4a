"""ClickHouse behind TLS that asks for a client's certificate; a bad file is one line that names it."""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from connectors.process.tls_files import CertificateUnreadable
from pipeline.clickhouse.client import connect
from pipeline.errors import StoreUnavailable
from pipeline.local.clickhouse.accounts import Account
from pipeline.local.clickhouse.embedded import EmbeddedStore
from schemas.settings import ClickHouse
from tests.support.checkout import ROOT

FILES = ROOT / "tests" / "data" / "tls"
"""Of an authority, and of a server at 127.0.0.1 and a client whom it knows; valid until 2126."""

WRITER = Account("kvlens", "a word", readonly=False)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory, free_port: Callable[[], int]) -> Iterator[str]:
    """The address of a TLS server in front of a store, which wants a certificate of the authority."""
    store = EmbeddedStore(tmp_path_factory.mktemp("tls"), free_port(), writer=WRITER)
    store.start()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(FILES / "server.pem", FILES / "server.key")
    context.load_verify_locations(FILES / "authority.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    port = free_port()
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)

    async def copied(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(1 << 16):
                writer.write(data)
                await writer.drain()
        except OSError:  # the client refused the certificate, or went away
            pass
        finally:
            writer.close()

    async def forwarded(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inside = await asyncio.open_connection("127.0.0.1", store.port)
        await asyncio.gather(copied(reader, inside[1]), copied(inside[0], writer))

    thread.start()
    server = asyncio.run_coroutine_threadsafe(
        asyncio.start_server(forwarded, "127.0.0.1", port, ssl=context), loop
    ).result()
    yield f"https://127.0.0.1:{port}"
    loop.call_soon_threadsafe(server.close)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    store.kill()


def settings(url: str, **changed: Any) -> ClickHouse:
    return msgspec.structs.replace(
        ClickHouse(
            url=url,
            ssl_cafile=str(FILES / "authority.pem"),
            ssl_certfile=str(FILES / "client.pem"),
            ssl_keyfile=str(FILES / "client.key"),
            # The connection ends before the store, so the certificate is no login.
            username=WRITER.name,
            password=WRITER.password,
        ),
        **changed,
    )


def test_a_client_with_the_authority_and_its_certificate_is_let_in(secured: str) -> None:
    client = connect(settings(secured))
    assert client.query("SELECT 1").result_rows == [(1,)]
    client.close()


def test_without_a_password_the_certificate_is_the_login_and_the_store_has_to_see_it(secured: str) -> None:
    with pytest.raises(StoreUnavailable, match="SSL certificate authentication requires") as raised:
        connect(settings(secured, password=""))
    assert not raised.value.heals


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"ssl_cafile": ""}, "certificate verify failed"),
        ({"ssl_cafile": str(FILES / "stranger.pem")}, "certificate verify failed"),
        ({"ssl_certfile": "", "ssl_keyfile": ""}, "name one in clickhouse.ssl_certfile"),
    ],
    ids=["no authority", "another authority", "no certificate"],
)
def test_who_is_refused_is_told_why_in_one_line(secured: str, changed: dict[str, str], reason: str) -> None:
    with pytest.raises(StoreUnavailable) as raised:
        connect(settings(secured, **changed))
    line = str(raised.value)
    assert "\n" not in line
    assert secured in line
    assert reason in line.lower()


@pytest.mark.parametrize("setting", ["ssl_cafile", "ssl_certfile", "ssl_keyfile"])
def test_a_file_that_cannot_be_used_is_named_with_its_setting(tmp_path: Path, setting: str) -> None:
    file = tmp_path / "file.pem"
    with pytest.raises(CertificateUnreadable) as raised:
        connect(settings("https://127.0.0.1:1", **{setting: str(file)}))
    assert str(raised.value) == f"cannot use {file} of clickhouse.{setting}: No such file or directory"
    file.write_text("something else")
    with pytest.raises(CertificateUnreadable) as raised:
        connect(settings("https://127.0.0.1:1", **{setting: str(file)}))
    kind = "private key" if setting == "ssl_keyfile" else "certificate"
    assert str(raised.value) == f"cannot use {file} of clickhouse.{setting}: no {kind} in PEM form"


def test_a_key_that_is_another_s_or_alone_is_told(tmp_path: Path) -> None:
    with pytest.raises(
        CertificateUnreadable, match=r"server\.key of clickhouse\.ssl_keyfile: its key is not that"
    ):
        connect(settings("https://127.0.0.1:1", ssl_keyfile=str(FILES / "server.key")))
    with pytest.raises(CertificateUnreadable, match=r"clickhouse\.ssl_certfile, which is empty"):
        connect(settings("https://127.0.0.1:1", ssl_certfile=""))
    with pytest.raises(CertificateUnreadable, match=r"name its file in clickhouse\.ssl_keyfile"):
        connect(settings("https://127.0.0.1:1", ssl_keyfile=""))
