"""Addresses: their parts, and how they and foreign text are shown in logs, in errors and on a terminal."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

MAX_PORT = 65535
HIDDEN = "********"
_LOGIN = re.compile(r"""([a-zA-Z][a-zA-Z0-9+.-]*://)[^\s"'<>\\]*@""")
_QUERY = re.compile(r"""(https?://[^\s"'<>\\?]*\?)[^\s"'<>\\]+""")


def bracketed(host: str) -> str:
    """Return a host as it stands before a port."""
    return f"[{host}]" if ":" in host else host


def shown(url: str) -> str:
    """Return an address without what may be secret in it: user, password and query."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "(no address)"
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def without_secrets(text: str) -> str:
    """Return a text with what may be secret hidden in all its addresses."""
    if "://" not in text:
        return text
    return _QUERY.sub(rf"\1{HIDDEN}", _LOGIN.sub(rf"\1{HIDDEN}@", text))


def printable(text: str) -> str:
    r"""Return the text with characters escaped, like `\x1b`, that move a cursor, break a line or turn text.

    In Unicode: control, format, surrogate, private use, unassigned, and separators other than the space.
    """
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else _escaped(each) for each in text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
