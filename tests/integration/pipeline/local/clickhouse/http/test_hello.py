from __future__ import annotations

import struct

import pytest
from aiohttp import ClientSession

from pipeline.local.clickhouse.embedded import EmbeddedStore
from pipeline.local.clickhouse.http.hello import hello_block

_QUESTION = b"SELECT displayName(), version(), revision(), timezone()"


def _string(block: bytes, at: int) -> tuple[str, int]:
    end = at + 1 + block[at]
    return block[at + 1 : end].decode(), end


@pytest.mark.parametrize("protocol", [54448, 54460])
async def test_the_answer_is_one_block_of_the_asked_protocol(store: EmbeddedStore, protocol: int) -> None:
    """Read as clickhouse-go 2.43 reads it, which was also run against the store by hand."""
    params = {"client_protocol_version": str(protocol), "default_format": "Native"}
    async with ClientSession(store.url) as http, http.post("/", params=params, data=_QUESTION) as answer:
        block = await answer.read()
    assert struct.unpack_from("<BBBiB", block) == (1, 0, 2, -1, 0)
    assert (block[8], block[9]) == (4, 1)
    at = 10
    values: dict[str, str | int] = {}
    for _ in range(4):
        name, at = _string(block, at)
        kind, at = _string(block, at)
        if protocol >= 54454:
            assert block[at] == 0
            at += 1
        if kind == "UInt32":
            values[name] = struct.unpack_from("<I", block, at)[0]
            at += 4
        else:
            values[name], at = _string(block, at)
    assert at == len(block)
    assert values["revision()"] == 0
    assert str(values["version()"]).count(".") == 3


@pytest.mark.parametrize(
    ("query", "statement"),
    [
        ({}, _QUESTION),
        ({"client_protocol_version": "0"}, _QUESTION),
        ({"client_protocol_version": "²"}, _QUESTION),
        ({"client_protocol_version": "9" * 5000}, _QUESTION),
        ({"client_protocol_version": "54460"}, b"SELECT version()"),
    ],
)
def test_other_questions_go_to_the_engine(query: dict[str, str], statement: bytes) -> None:
    assert hello_block(query, statement, "26.9", "UTC") is None
