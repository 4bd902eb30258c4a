"""Who may talk to the store: the engine has no users of its own, so the front checks them."""

from __future__ import annotations

import binascii
import hmac
from base64 import b64decode
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from connectors.process.addresses import printable
from pipeline.local.clickhouse.errors import AUTHENTICATION_FAILED, StoreError


class Account(NamedTuple):
    name: str
    password: str
    readonly: bool


DEFAULT_ACCOUNT = Account("default", "", readonly=False)
"""What a ClickHouse server has when nobody configured users."""

_NO_CERTIFICATE = (
    "Invalid authentication: SSL certificate authentication requires nonempty certificate's Common Name or "
    "Subject Alternative Name. (AUTHENTICATION_FAILED)"
)
"""The front has no TLS, so no client can have shown a certificate."""


def authenticate(
    accounts: Sequence[Account], headers: Mapping[str, str], query: Mapping[str, str]
) -> Account:
    """Return the account that a request names by X-ClickHouse-User/-Key, HTTP basic or URL.

    Raises StoreError 516.
    """
    if headers.get("X-ClickHouse-SSL-Certificate-Auth", "").lower() == "on":
        raise StoreError(AUTHENTICATION_FAILED, _NO_CERTIFICATE)
    name, password = _credentials(headers, query)
    for account in accounts:
        if account.name == name and hmac.compare_digest(_bytes(account.password), _bytes(password)):
            return account
    raise StoreError(
        AUTHENTICATION_FAILED,
        f"{printable(name)}: Authentication failed: password is incorrect, or there is no user with such "
        "name. (AUTHENTICATION_FAILED)",
    )


def _bytes(text: str) -> bytes:
    """Return the bytes that were sent: aiohttp turns those that are not UTF-8 into surrogates."""
    return text.encode("utf-8", "surrogateescape")


def _credentials(headers: Mapping[str, str], query: Mapping[str, str]) -> tuple[str, str]:
    if "X-ClickHouse-User" in headers or "X-ClickHouse-Key" in headers:
        return headers.get("X-ClickHouse-User", "default"), headers.get("X-ClickHouse-Key", "")
    scheme, _, encoded = headers.get("Authorization", "").partition(" ")
    if scheme.lower() == "basic":
        try:
            name, _, password = b64decode(_bytes(encoded), validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError) as error:
            raise StoreError(AUTHENTICATION_FAILED, "Invalid authorization header") from error
        return name, password
    return query.get("user", "default"), query.get("password", "")
