"""The examples that end the help of each command."""

from __future__ import annotations


def examples(*lines: str) -> str:
    """Return the epilog that shows these command lines, one a line, as they are."""
    return "\n".join(("\b", "Examples:", *(f"  {line}" for line in lines)))
