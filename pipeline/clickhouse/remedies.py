"""What to do about ClickHouse's errors, by their code. Pure.

The numbers are those of ClickHouse's `src/Common/ErrorCodes.cpp`; they never change their meaning.
"""

from __future__ import annotations

import re

from schemas.settings import ClickHouse

NO_LOGIN = (192, 193, 194, 516)  # unknown user, wrong or required password
_NO_RIGHT = (497, 164, 452)  # no grant, a profile that only reads, a setting that its profile fixes
_UNKNOWN_TABLE = (60, 81)  # UNKNOWN_TABLE, UNKNOWN_DATABASE
_UNKNOWN_COLUMN = (16, 47)  # NO_SUCH_COLUMN_IN_TABLE, UNKNOWN_IDENTIFIER
_UNKNOWN_FUNCTION = 46
"""The error for a missing view with parameters: ClickHouse takes it for a table function."""
_TOO_MANY_PARTS = (252,)  # that wait to be merged
_NO_ROOM = (75, 243)  # CANNOT_WRITE_TO_FILE_DESCRIPTOR, NOT_ENOUGH_SPACE
_READ_ONLY_TABLE = (242,)  # a replicated table without its Keeper
_NO_SHARD = (209, 210, 279)  # timeout, network error, no connection to any replica
BROKEN = (32, 33, 40, 74, 76, 107, 117, 226, 228, 246, 271)
"""Errors in reading a damaged part of a table, but also in reading a client's data: see `broken_part`."""
_PART = re.compile(r"(?i)while reading from part (\S+?)/? in table (\S+)")
OPERATIONS = "docs/operations.md#clickhouse-is-down-or-slow"


def broken_part(code: int | None, text: str) -> str | None:
    """Return table and part, with a space between, if an error says that a part cannot be read; else None."""
    found = _PART.search(text) if code in BROKEN else None
    return found and f"{found[2]} {found[1].rpartition('/')[2]}"


def remedy(code: int | None, text: str, store: ClickHouse) -> str:
    """Return what to do about an error; `code` is None where no server answered.

    A lack of time, memory or turns is a `StoreBusy` instead (`client.py`).
    """
    if code is None:
        return "check clickhouse.url and that it runs"
    if code in _UNKNOWN_TABLE or (code == _UNKNOWN_FUNCTION and "table function" in text):
        return "run `kvlens migrate`"
    if code in _UNKNOWN_COLUMN:
        return "run `kvlens migrate`: its tables are older than this kvlens"
    if code in NO_LOGIN or code in _NO_RIGHT:
        return "check clickhouse.username, its password and its rights (docs/grants.md)"
    if (part := broken_part(code, text)) is not None:
        return (
            f"part {part.rpartition(' ')[2]} of {part.partition(' ')[0]} cannot be read: restart ClickHouse, "
            f"as `up` and `demo` do by themselves; if that does not help, see {OPERATIONS}"
        )
    if code in _NO_ROOM:
        return "make room on the disk of ClickHouse"
    if code in _TOO_MANY_PARTS:
        return "ClickHouse is overloaded: wait, or give it more"
    if code in _READ_ONLY_TABLE:
        return "check ClickHouse Keeper: its replicated tables take no rows without it"
    if code in _NO_SHARD and store.cluster:
        return f"a shard of cluster {store.cluster} does not answer: check its servers"
    return "ClickHouse's own log says more"
