"""Gives views the same answer in any session, whatever its zone and its profile. Pure.

ClickHouse passes an argument to a view as text, and a DateTime loses its zone in it: `now()` is the clock of
the session. So a view with times has two variants. Readers use the one that takes text, works out the
moments, and asks the other. Views use each other's `…_in_utc`, which takes moments, has the text of the file,
and is given text in UTC. One view that does both would be planned once, but where its tables are distributed,
ClickHouse (26.7) does not find the names in the expression that works out the moments.
"""

from __future__ import annotations

import re

IN_UTC = "_in_utc"
"""Suffix of the variant that takes moments."""

INNER = ("_windows", "_of_both")
"""Suffixes of views that only other views read: they need no variant that takes text."""

PINNED = {
    # NULL instead of 0 or an empty text, where a join finds no row or an aggregate has nothing to add up.
    "join_use_nulls": 0,
    "aggregate_functions_null_for_empty": 0,
    "group_by_use_nulls": 0,
    # Other types of columns.
    "cast_keep_nullable": 0,
    "data_type_default_nullable": 0,
    # What a name, and NULL, mean.
    "prefer_column_name_to_alias": 0,
    "transform_null_in": 0,
    # No row instead of one.
    "empty_result_for_aggregation_by_empty_set": 0,
    # The views say FINAL themselves where it is needed, and leave it out where it costs.
    "final": 0,
}
"""Settings that views fix: with other values, from a reader's profile, our SQL would mean other things."""

_VIEW = re.compile(r"^(?P<verb>CREATE VIEW \{database\}\.(?P<name>\w+)) AS", re.M)
_PARAMETER = re.compile(r"\{(\w+):([^{}]+)\}")
_MOMENT = "DateTime('UTC')"
_ASKED = re.compile(r"(\{database\}\.\w+)(?=\()")
_SETTINGS = re.compile(r"\nSETTINGS ([^\n]+)\s*\Z")

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
"""From text to seconds since the epoch, or an error. Without a zone it is the session's time, as everywhere
in ClickHouse; refused in an hour that occurs twice, and if it is now in UTC, which was probably meant."""

_ADVICE = "give seconds since the epoch, as toUnixTimestamp(now())"
_REFUSED = {
    "unread": "{name} is no time: ",
    "twice": "{name} is in an hour that the clock of this session shows twice: ",
    "elsewhere": "{name} is the clock of UTC, and this session has another: ",
}


def for_readers(statement: str) -> list[str]:
    """Return the statements for the variants of a view; one that makes no view stays as it is."""
    found = _VIEW.search(statement)
    if found is None:
        return [statement]
    inner = _with_settings(_ASKED.sub(rf"\1{IN_UTC}", statement))
    parameters = dict(_PARAMETER.findall(statement[found.end() :]))
    if _MOMENT not in parameters.values():
        return [inner]
    inner = _VIEW.sub(rf"\g<verb>{IN_UTC} AS", inner)
    if found["name"].endswith(INNER):
        return [inner]
    arguments = ",\n    ".join(
        f"{name} = {_read(name) if kind == _MOMENT else f'{{{name}:{kind}}}'}"
        for name, kind in parameters.items()
    )
    outer = f"{found['verb']} AS\nSELECT *\nFROM {{database}}.{found['name']}{IN_UTC}(\n    {arguments}\n)"
    return [inner, _with_settings(outer)]


def _read(name: str) -> str:
    """Return the expression that reads the time in a parameter."""
    said = {reason: words.format(name=name) + _ADVICE for reason, words in _REFUSED.items()}
    return _READ.format(name=name, **said)


def _with_settings(statement: str) -> str:
    """Return the statement with all settings of PINNED, except those that it sets itself."""
    own = _SETTINGS.search(statement)
    named = dict(part.strip().split(" = ") for part in own[1].split(",")) if own else {}
    settings = {**PINNED, **named}
    text = statement[: own.start()] if own else statement.rstrip()
    return f"{text}\nSETTINGS {', '.join(f'{name} = {value}' for name, value in settings.items())}"
