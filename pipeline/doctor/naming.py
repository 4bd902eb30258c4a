"""How findings name sources and times. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timezone
from typing import TypeVar

from pipeline.doctor.facts import SourceId

NAMED = 3
"""Sources whose figures a message spells out; `subjects` has all."""

_Figures = TypeVar("_Figures")


def source_name(source: SourceId) -> str:
    """Return what a source is called: replica/rank."""
    return f"{source[0]}/{source[1]}"


def names(sources: Iterable[SourceId]) -> tuple[str, ...]:
    """Return what sources are called."""
    return tuple(map(source_name, sources))


def first(found: Mapping[SourceId, _Figures]) -> list[tuple[SourceId, _Figures]]:
    """Return the sources that a message spells out, and their figures."""
    return list(found.items())[:NAMED]


def clock(at: float | None) -> str:
    """Return a time as people write it, UTC."""
    return "?" if at is None else datetime.fromtimestamp(at, timezone.utc).strftime("%Y-%m-%d %H:%M:%S")
