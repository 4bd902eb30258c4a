"""Conditions in PromQL that hold where series begin, too."""

from __future__ import annotations


def counted(counter: str, span: str) -> str:
    """Return a condition: the counter grew in the last `span`.

    A counter with a label begins with its first count, and one of a new process may have counted before it
    is read for the first time: of a series that begins above 0, `increase` sees nothing.
    """
    began = f"{counter} > 0 unless last_over_time({counter}[{span}] offset {span})"
    return f"increase({counter}[{span}]) > 0 or {began}"


def older(timestamp: str, seconds: int, unset_for: str) -> str:
    """Return a condition: the timestamp is older than `seconds`, or has been 0, which is none, for a time."""
    unset = f"{timestamp} == 0 and {timestamp} offset {unset_for} == 0"
    return f"time() - ({timestamp} > 0) > {seconds} or {unset}"
