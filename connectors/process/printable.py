"""Names of others as they may be shown on a terminal, in a log or in a line of an answer."""

from __future__ import annotations


def printable(text: str) -> str:
    r"""Return the text with what moves a cursor, breaks a line or turns the reading direction as `\x1b`.

    Unicode calls it control, format, surrogate, private, unassigned, or a separator that is no blank.
    """
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else _escaped(each) for each in text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
