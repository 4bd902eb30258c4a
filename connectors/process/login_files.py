"""Credentials in files: read, checked for changes, and counted when they are read again."""

from __future__ import annotations

import os
from base64 import b64encode

import prometheus_client

from schemas import metric_kinds, metrics


class Unreadable(Exception):
    """A file holds no text that could be a password or a token; the text says why."""


def _counter(metric: metric_kinds.Counter) -> prometheus_client.Counter:
    return prometheus_client.Counter(metric.name, metric.meaning, metric.labels, registry=None)


RENEWED, UNUSABLE = _counter(metrics.Login.renewed), _counter(metrics.Login.unusable)
"""Counters of the process, for its registry: the connections of all its clients count here."""


def text_of(file: str) -> str:
    """Return the text of a file, without the end of its last line. Raises Unreadable."""
    try:
        with open(file, encoding="utf-8") as opened:
            text = opened.read().rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise Unreadable(
            (error.strerror if isinstance(error, OSError) else None) or "not UTF-8 text"
        ) from error
    if not text:
        raise Unreadable("it is empty")
    return text


def basic(username: str, password: str) -> str:
    """Return the header `Authorization` of basic authentication (RFC 7617)."""
    return f"Basic {b64encode(f'{username}:{password}'.encode()).decode()}"


def state_of(file: str) -> tuple[int, ...] | None:
    """Return what changes with a file, also when only its owner or mode does; None if there is no file."""
    try:
        found = os.stat(file)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino
