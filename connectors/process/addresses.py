"""Addresses as they may be shown: in logs, in errors, on a terminal."""

from __future__ import annotations

from urllib.parse import urlsplit


def shown(url: str) -> str:
    """Return an address without what may be secret in it: user, password and query."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "(no address)"
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
