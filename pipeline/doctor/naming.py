"""How findings name sources, partitions and times. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timezone

from pipeline.doctor.facts import SourceId
from pipeline.doctor.finding import Finding, Severity

NAMED = 3
"""Sources whose figures a message spells out; `subjects` has all."""


def source_name(source: SourceId) -> str:
    """Return what a source is called: replica/rank."""
    return f"{source[0]}/{source[1]}"


def names(sources: Iterable[SourceId]) -> tuple[str, ...]:
    """Return what sources are called."""
    return tuple(map(source_name, sources))


def partitions(numbers: Iterable[int]) -> tuple[str, ...]:
    """Return what partitions are called, in their order."""
    return tuple(f"partition {number}" for number in sorted(numbers))


def of_sources(
    code: str, severity: Severity, message: str, remedy: str, found: Mapping[SourceId, str]
) -> Iterator[Finding]:
    """Yield the finding about sources, if any were found; behind `message` it says what of the first ones."""
    if found:
        said = [f"{source_name(source)} {what}".rstrip() for source, what in found.items()]
        yield Finding(code, severity, f"{message}: {'; '.join(said[:NAMED])}", remedy, names(found))


def clock(at: float | None) -> str:
    """Return a time as people write it, UTC."""
    return "?" if at is None else datetime.fromtimestamp(at, timezone.utc).strftime("%Y-%m-%d %H:%M:%S")
