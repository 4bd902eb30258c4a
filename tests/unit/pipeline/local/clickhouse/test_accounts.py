"""Logins of the embedded store that are no text."""

from __future__ import annotations

import pytest

from pipeline.local.clickhouse.accounts import DEFAULT_ACCOUNT, authenticate
from pipeline.local.clickhouse.errors import AUTHENTICATION_FAILED, StoreError


@pytest.mark.parametrize(
    "headers",
    [
        {
            "X-ClickHouse-User": "default",
            "X-ClickHouse-Key": "\udcff",
        },  # as aiohttp gives bytes without UTF-8
        {"X-ClickHouse-User": "\udcff\x1b"},
        {"Authorization": "Basic /w=="},
        {"Authorization": "Basic \udcff"},
    ],
)
def test_what_is_no_text_is_no_login(headers: dict[str, str]) -> None:
    with pytest.raises(StoreError) as caught:
        authenticate([DEFAULT_ACCOUNT], headers, {})
    assert caught.value.code == AUTHENTICATION_FAILED
    assert str(caught.value).isprintable()
