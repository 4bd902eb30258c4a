"""What is wrong with settings although each one is of its type."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SettingsProblem:
    """`text` names the path inside the document."""

    path: tuple[str, ...]
    """("replicas",) or (section, key), to look up where it came from."""
    text: str
