"""The `kvlens ...` command lines that pages of the documentation show."""

from __future__ import annotations

import re
from collections.abc import Iterator

FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.S | re.M)
SHELL = {"bash", "sh", "shell"}
PROMPT = re.compile(
    r"^\s*(?:\$ )?(?:[A-Z_]+=\S+ )*(?:(?:uv run|sudo|exec|\.venv/bin/)\s*)*(?=kvlens(?:\s|$))"
)


def command_lines(text: str) -> Iterator[str]:
    """Every `kvlens ...` command line that a code block of the page shows.

    In shell blocks each line is a command, in others only what follows a `$` is.
    """
    for language, block in FENCE.findall(text):
        for line in block.replace("\\\n", " ").splitlines():
            if (language in SHELL or line.lstrip().startswith("$ ")) and (found := PROMPT.match(line)):
                yield line[found.end() :]
