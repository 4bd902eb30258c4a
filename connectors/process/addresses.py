"""Addresses and names of others as they may be shown: in logs, in errors, on a terminal."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

HIDDEN = "********"
_LOGIN = re.compile(r"""([a-zA-Z][a-zA-Z0-9+.-]*://)[^\s"'<>\\]*@""")
_QUERY = re.compile(r"""(https?://[^\s"'<>\\?]*\?)[^\s"'<>\\]+""")


def shown(url: str) -> str:
    """Return an address without what may be secret in it: user, password and query."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "(no address)"
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def without_secrets(text: str) -> str:
    """Return a text with what may be secret hidden in all addresses that stand in it."""
    if "://" not in text:
        return text
    return _QUERY.sub(rf"\1{HIDDEN}", _LOGIN.sub(rf"\1{HIDDEN}@", text))


def printable(text: str) -> str:
    r"""Return the text with what moves a cursor, breaks a line or turns the reading direction as `\x1b`.

    Unicode calls it control, format, surrogate, private, unassigned, or a separator that is no blank.
    """
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else _escaped(each) for each in text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
