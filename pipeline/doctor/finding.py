"""A finding: what is wrong, with whom, and what to do."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Severity = Literal["problem", "unknown", "note"]
"""problem: something has to be done. unknown: it could not be looked at. note: good to know, no more."""

HEALTHY = 0
PROBLEMS = 1
CANNOT_TELL = 2


@dataclass(frozen=True)
class Finding:
    """One line of the diagnosis; sources with the same trouble share it."""

    code: str
    """Name that never changes; docs/operations.md says what to do."""
    severity: Severity
    message: str
    remedy: str = ""
    subjects: tuple[str, ...] = ()
    """Sources, topics or partitions concerned."""


def exit_code(findings: Iterable[Finding]) -> int:
    """Return HEALTHY, PROBLEMS, or CANNOT_TELL when no problem was seen but not everything could be."""
    severities = {finding.severity for finding in findings}
    if "problem" in severities:
        return PROBLEMS
    return CANNOT_TELL if "unknown" in severities else HEALTHY
