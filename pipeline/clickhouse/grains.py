"""SQL for windows of ten seconds, minutes and hours that is written only once. Pure.

Lines from `-- for 10s, 1m, 1h` to `-- end` are for these grains: a view gets an arm of a UNION ALL for each;
a table or rollup has them only in the statements of these grains. There, and in statements of tables with
`{grain}` or `{period}`, the fields of `Grain` are placeholders for what differs.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple


class Grain(NamedTuple):
    """The text for each placeholder."""

    grain: str
    """Suffix of the names of its tables."""
    length: int
    """Seconds of a window."""
    unit: str
    """What a window is called after INTERVAL 1."""
    period: str
    """The same in the names of tables of counters."""
    start: str
    """Rounds the start of a range down to a window; empty for ten seconds, which must begin in the range."""
    slice: str
    """The function from a window to the first expression of the sorting key."""
    partition: str
    """The function from a window to its partition."""
    kept: str
    """How long rows are kept."""
    finer: str = ""
    """The grain that it is computed from."""
    windows: str = ""
    """The number of ten-second windows behind rows of the finer grain."""
    peak: str = ""
    """Suffix of the columns of the finer grain that have the largest value of their windows."""
    shard: str = ""
    """Further columns in the key of the finer grain, that the key of this one does not have."""


TEN_SECONDS = Grain("10s", 10, "SECOND", "second", "", "toStartOfHour", "toYYYYMMDD", "7 DAY")
MINUTES = Grain(
    "1m", 60, "MINUTE", "minute", "toStartOfMinute", "toStartOfHour", "toYYYYMM", "60 DAY",
    finer="10s", windows="count()", shard=", fine.shard",
)  # fmt: skip
HOURS = Grain(
    "1h", 3600, "HOUR", "hour", "toStartOfHour", "toStartOfMonth", "toYYYYMM", "2 YEAR",
    finer="1m", windows="sum(fine.windows)", peak="_max",
)  # fmt: skip
GRAINS = {each.grain: each for each in (TEN_SECONDS, MINUTES, HOURS)}

_FINEST = "(SELECT seconds FROM {database}.finest({range}))"
_BOUNDS = """window >= {start}({from})
{indent}AND window <= {to}
{indent}AND {slice}(window) >= {slice}({from})
{indent}AND {slice}(window) <= {to}"""
_EVERYWHERE = {
    "{finest}": _FINEST,
    "{range}": "from = {from}, to = {to}",
    "{from}": "{from:DateTime('UTC')}",
    "{to}": "{to:DateTime('UTC')}",
}
"""What replaces these in any view, in this order."""
_BLOCK = re.compile(r"^ *-- for ((?:\w+(?:, )?)+)\n(.*?)^ *-- end\n?", re.M | re.S)
_OF = re.compile(r"^-- of ((?:\w+(?:, )?)+)\n", re.M)
_BOUNDED = re.compile(r"^( *)(.*)\{bounds\}", re.M)


def of_view(text: str) -> str:
    """Return a view with an arm for each grain of a block; what is outside of blocks is for ten seconds."""

    def arms(block: re.Match[str]) -> str:
        return "UNION ALL\n".join(filled(block[2], GRAINS[name]) for name in block[1].split(", "))

    text = filled(_BLOCK.sub(arms, text), TEN_SECONDS)
    for name, meaning in _EVERYWHERE.items():
        text = text.replace(name, meaning)
    return text


def of_rollup(text: str, grain: str) -> str:
    """Return the statement that computes minutes (`1m`) or hours (`1h`)."""
    return _of_one(text, GRAINS[grain])


def of_table(statement: str) -> Sequence[str]:
    """Return the statement for each grain, if it has a placeholder for the grain; else as it is.

    A first line `-- of 1m, 1h` says for which grains it is; without one it is for all.
    """
    if not re.search(r"\{(grain|period)\}", statement):
        return (statement,)
    named = _OF.search(statement)
    names = named[1].split(", ") if named else GRAINS
    return [_of_one(_OF.sub("", statement), GRAINS[name]) for name in names]


def _of_one(text: str, grain: Grain) -> str:
    def own(block: re.Match[str]) -> str:
        return block[2] if grain.grain in block[1].split(", ") else ""

    return filled(_BLOCK.sub(own, text), grain)


def filled(text: str, grain: Grain) -> str:
    """Return a text with what differs between grains filled in."""
    text = _BOUNDED.sub(_bounds, text)
    for name, meaning in {**grain._asdict(), "rest": grain.length - 1}.items():
        text = text.replace(f"{{{name}}}", str(meaning))
    return text


def _bounds(at: re.Match[str]) -> str:
    indent, before = at.groups()
    deeper = indent if before.startswith("AND") else indent + "    "
    return indent + before + _BOUNDS.replace("{indent}", deeper)
