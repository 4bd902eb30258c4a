"""No page of another site asks the store: browsers reach loopback from any page they show."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

from pipeline.local.clickhouse.errors import ACCESS_DENIED, StoreError

LOOPBACK = frozenset(("127.0.0.1", "localhost", "::1"))


def refuse_foreign_pages(headers: Mapping[str, str], loopback: bool) -> None:
    """Refuse what a browser sends for a page of another site; raises StoreError 497.

    Programs send neither `Origin` nor `Sec-Fetch-Site`. Where only loopback is served, any other name in
    `Host` is that of a site whose address was changed to loopback after its page was loaded.
    """
    host = urlsplit(f"//{headers.get('Host', '127.0.0.1')}").hostname or ""
    origin = headers.get("Origin")
    if headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin") or (
        origin is not None and urlsplit(origin).netloc != headers.get("Host")
    ):
        raise StoreError(ACCESS_DENIED, "The embedded store answers programs and its own pages only")
    if loopback and host not in LOOPBACK:
        raise StoreError(ACCESS_DENIED, f"The embedded store does not answer to the name {host}")
