"""Finds in a statement the few parts that reach outside the store and for which the engine has no grants.

Nearly everything that reaches files, hosts or programs needs a grant that nobody has (`rights.xml`). The
engine does the rest before it checks rights, or without a check. This module looks for it in the engine's own
spelling of a statement, in which a string is in single quotes, a name in backticks or bare, and there are no
comments.
"""

from __future__ import annotations

import re

_PART = re.compile(
    rb"""
    '(?:[^'\\]|\\.)*'
    | (?P<clause>\b(?:INTO\ OUTFILE|FROM\ INFILE)\ ')
    | (?P<function>\b(?:file|python|executable)\(|`(?:file|python|executable)`\()
    | `(?:[^`\\]|\\.)*`
    """,
    re.VERBOSE | re.DOTALL | re.IGNORECASE,
)

_WORD = re.compile(r"file|python|executable|\\", re.IGNORECASE)


def may_reach_outside(statement: str) -> bool:
    """Return whether it is worth asking the engine for its spelling, which takes a millisecond.

    Names and keywords cannot be split, and only a backslash can spell a letter of a quoted name differently.
    """
    return _WORD.search(statement) is not None


def outside_part(spelled: bytes) -> str | None:
    """Return the first such function or clause of a statement as `formatQuerySingleLine` spells it."""
    for part in _PART.finditer(spelled):
        if part["clause"]:
            return part["clause"].decode().removesuffix(" '")
        if part["function"]:
            return f"{part['function'].decode()})"
    return None
