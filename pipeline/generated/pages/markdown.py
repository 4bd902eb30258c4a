"""Markdown of the generated reference pages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

GENERATED = "<!-- Written by `python -m pipeline.generated`; edit {sources} instead. -->"


def page(title: str, sources: str, *blocks: str) -> bytes:
    """Return a page: its title, where its text comes from, and its blocks."""
    return ("\n\n".join([f"# {title}", GENERATED.format(sources=sources), *blocks]) + "\n").encode()


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; bars and line ends inside cells are made safe."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(map(_cell, line)) + " |" for line in lines)


def code(text: str) -> str:
    """Return text as inline code."""
    return f"`{text}`"


def fenced(language: str, text: str) -> str:
    """Return a code block."""
    return f"```{language}\n{text.strip()}\n```"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
