"""Keeps pages of other sites from a listener without a login: browsers let any page reach loopback.

What a browser sends for a page without a preflight request is defined by the Fetch standard
(https://fetch.spec.whatwg.org, "CORS-safelisted"), and what its headers say about that page by Fetch Metadata
(https://www.w3.org/TR/fetch-metadata).
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from typing import Literal, NamedTuple
from urllib.parse import urlsplit

from connectors.process.addresses import printable

ForeignReason = Literal[
    "foreign_page",  # sent for a page of another site, or to a name that such a page can make its own
    "content_type",  # a body of a type that any page may send without a preflight request
]
_SIMPLE_BODIES = frozenset(("application/x-www-form-urlencoded", "multipart/form-data", "text/plain"))
_TYPE = re.compile(r"[a-z0-9!#$%&'*+.^_`|~-]+/[a-z0-9!#$%&'*+.^_`|~-]+")
_SHOWN_CHARACTERS = 80


class Refusal(NamedTuple):
    """Why a request is refused; `text` is one line for the client."""

    reason: ForeignReason
    text: str

    @property
    def status(self) -> int:
        """Return the HTTP status."""
        return 403 if self.reason == "foreign_page" else 415


def is_loopback(host: str) -> bool:
    """Return whether a name or address is of this machine, and no other machine reaches it."""
    if host == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


def foreign(
    method: str, headers: Mapping[str, str], *, loopback: bool, linked: bool, simple_bodies: bool
) -> Refusal | None:
    """Return why a request is refused where there is no login; None: a program or one of our pages sent it.

    `loopback`: the listener can only be reached there. Any other name in `Host` may then be that of a site
    whose address was changed to loopback after its page was loaded. `linked`: links of other sites may lead
    here. `simple_bodies`: bodies may be of the types that a page may send without a preflight request.
    """
    if loopback and "Host" in headers and not _is_own(name := _name(headers["Host"])):
        shown = printable(name)[:_SHOWN_CHARACTERS]
        text = f"without a login this answers to names of loopback alone, not to {shown}"
        return Refusal("foreign_page", f"{text}: have what stands in front send Host: 127.0.0.1")
    if _of_another_site(headers) and not (linked and _is_link(method, headers)):
        return Refusal("foreign_page", "without a login this answers programs and its own pages alone")
    if method == "POST" and not simple_bodies and not _needs_leave(headers.get("Content-Type", "")):
        return Refusal("content_type", "send Content-Type: application/json")
    return None


def _name(host: str) -> str:
    """Return the name in a `Host`, without the port."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return host


def _is_own(name: str) -> bool:
    """Return whether no other site can have the name: RFC 6761 reserves those below `localhost`."""
    return name.rstrip(".").endswith(".localhost") or is_loopback(name.rstrip("."))


def _of_another_site(headers: Mapping[str, str]) -> bool:
    """Return whether the browser says so. Programs send neither header, and no page can set them itself."""
    site = headers.get("Sec-Fetch-Site")
    if site == "same-origin":
        return False  # also where a reverse proxy changes `Host`, so that `Origin` has another name
    if site not in (None, "none"):
        return True
    origin = headers.get("Origin")
    return origin is not None and origin.partition("://")[2] != headers.get("Host")


def _is_link(method: str, headers: Mapping[str, str]) -> bool:
    """Return whether somebody follows a link: the other page sees nothing of the answer."""
    return (
        method in ("GET", "HEAD")
        and headers.get("Sec-Fetch-Mode") == "navigate"
        and headers.get("Sec-Fetch-Dest") == "document"
    )


def _needs_leave(content_type: str) -> bool:
    """Return whether a browser sends a preflight request before a body of the type, for a page elsewhere."""
    essence = content_type.partition(";")[0].strip().lower()
    return _TYPE.fullmatch(essence) is not None and essence not in _SIMPLE_BODIES
