"""Text as a literal in ClickHouse's SQL. Pure."""

from __future__ import annotations


def quoted(text: str) -> str:
    """Return the text as a string literal."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
