"""Views as readers meet them: the same answer in any session, whatever its zone and its profile. Pure.

ClickHouse hands an argument of a view over as text, and a DateTime has lost its zone in it: `now()` is the
clock of the session. So a view with times is two. The one that readers name takes them as text, and finds
out which moments they are. The other one, `…_in_utc`, is given moments: by it views name each other, and
hand over text in UTC. Both have the text of the file: a view around the other would be planned twice.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

IN_UTC = "_in_utc"
"""Ends the name of the view that is given moments."""
_READ_AS = "_moment"
"""Ends the name by which a view that reads times calls one."""

INNER = ("_windows", "_of_both")
"""What the names of views end with that only other views ask: no reader's times have to be read for them."""

PINNED = {
    # NULL in place of 0 and of the empty text, where a join finds nothing, an aggregate nothing to add up.
    "join_use_nulls": 0,
    "aggregate_functions_null_for_empty": 0,
    "group_by_use_nulls": 0,
    # Other types.
    "cast_keep_nullable": 0,
    "data_type_default_nullable": 0,
    # What a name, and NULL, mean.
    "prefer_column_name_to_alias": 0,
    "transform_null_in": 0,
    # A row less.
    "empty_result_for_aggregation_by_empty_set": 0,
    # The views say FINAL themselves where it is needed, and leave it out where it costs.
    "final": 0,
}
"""Settings that a reader's profile may have, under which a statement of ours would mean something else."""

_VIEW = re.compile(r"^(?P<verb>CREATE VIEW \{database\}\.(?P<name>\w+)) AS", re.M)
_PARAMETER = re.compile(r"\{(\w+):([^{}]+)\}")
_MOMENT = "DateTime('UTC')"
_ASKED = re.compile(r"(\{database\}\.\w+)(?=\()")
_SETTINGS = re.compile(r"\nSETTINGS ([^\n]+)\s*\Z")
_BEGINS_WITH = re.compile(r"\s*(?:--[^\n]*\n\s*)*WITH\s")

_READ = """(
    WITH
        {{{name}:String}} AS text,
        match(text, '^[0-9]{{1,10}}([.][0-9]*)?$') AS is_number,
        match(text, '(Z|UTC|GMT|[+-][0-9]{{2}}:?[0-9]{{2}})$') AS has_zone,
        parseDateTime64BestEffortOrNull(text, 3, timezone()) AS moment,
        parseDateTime64BestEffortOrNull(text, 3, 'UTC') AS in_utc,
        arrayExists(
            shift -> toString(moment + toIntervalMinute(shift)) = toString(moment), [-60, -30, 30, 60]
        ) AS is_twice
    SELECT if(is_number, toUInt32(toFloat64OrZero(text)), toUnixTimestamp(assumeNotNull(moment)))
    WHERE throwIf(NOT is_number AND isNull(moment), '{unread}') = 0
        AND throwIf(NOT is_number AND NOT has_zone AND ifNull(is_twice, false), '{twice}') = 0
        AND throwIf(
            NOT is_number AND moment != in_utc AND abs(dateDiff('second', in_utc, now('UTC'))) < 120,
            '{elsewhere}'
        ) = 0
)"""
"""Seconds since the epoch, or an error. A clock without a zone is the session's, as everywhere in ClickHouse;
refused where it shows an hour twice, and where it is the present clock of UTC, of whoever meant that one."""

_ADVICE = "give seconds since the epoch, as toUnixTimestamp(now())"
_REFUSED = {
    "unread": "{name} is no time: ",
    "twice": "{name} is in an hour that the clock of this session shows twice: ",
    "elsewhere": "{name} is the clock of UTC, and this session has another: ",
}


def for_readers(statement: str) -> list[str]:
    """Return what a statement becomes; another than one that makes a view stays as it is."""
    found = _VIEW.search(statement)
    if found is None:
        return [statement]
    statement = _with_settings(_ASKED.sub(rf"\1{IN_UTC}", statement))
    parameters = _PARAMETER.findall(statement[found.end() :])
    moments = [name for name, kind in dict(parameters).items() if kind == _MOMENT]
    if not moments:
        return [statement]
    given = _VIEW.sub(rf"\g<verb>{IN_UTC} AS", statement)
    return [given] if found["name"].endswith(INNER) else [given, _reading(statement, moments)]


def _reading(statement: str, moments: Iterable[str]) -> str:
    """Return the statement of a view that is given text for these parameters."""
    found = _VIEW.search(statement)
    assert found is not None
    before, text = statement[: found.end()], statement[found.end() :]
    reads = []
    for name in moments:
        said = {reason: words.format(name=name) + _ADVICE for reason, words in _REFUSED.items()}
        reads.append(f"toDateTime({_READ.format(name=name, **said)}, 'UTC') AS {name}{_READ_AS}")
        text = text.replace(f"{{{name}:{_MOMENT}}}", f"{name}{_READ_AS}")
    if (own := _BEGINS_WITH.match(text)) is not None:
        text = f",{text[own.end() - 1 :]}"
    return f"{before}\nWITH\n{', '.join(reads)}{text}"


def _with_settings(statement: str) -> str:
    """Return the statement with all settings of PINNED, but for those that it names itself."""
    own = _SETTINGS.search(statement)
    named = dict(part.strip().split(" = ") for part in own[1].split(",")) if own else {}
    settings = {**PINNED, **named}
    text = statement[: own.start()] if own else statement.rstrip()
    return f"{text}\nSETTINGS {', '.join(f'{name} = {value}' for name, value in settings.items())}"
