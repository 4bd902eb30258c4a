"""The diagnosis as text for people and as JSON for programs. Pure."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from connectors.process.addresses import printable
from pipeline.doctor.facts import Facts, GroupFacts, SourceId
from pipeline.doctor.finding import CANNOT_TELL, HEALTHY, PROBLEMS, Finding, exit_code
from pipeline.doctor.naming import clock
from pipeline.text_table import counted, text_table

VERDICTS = {HEALTHY: "healthy", PROBLEMS: "problems", CANNOT_TELL: "cannot tell"}
SHOWN_SUBJECTS = 5

_COLUMNS = (
    *("source", "connected", "last batch", "position", "log", "table"),
    *("lost", "filled", "trust", "since", "drift"),
)
_EXPENDABLE = (3, 7, 9, 4, 10)
"""Columns to leave out on a narrow terminal, in this order."""


def as_json(facts: Facts, findings: Sequence[Finding]) -> dict[str, Any]:
    """Return verdict, findings and the figures of each source."""
    code = exit_code(findings)
    return {
        "verdict": VERDICTS[code],
        "exit_code": code,
        "at": facts.at,
        "findings": [msgspec.to_builtins(finding) for finding in findings],
        "sources": [_figures(facts, source) for source in facts.sources()],
        "topics": [msgspec.to_builtins(topic) for topic in facts.kafka.topics],
        "groups": [
            {
                "name": group.name,
                "topic": group.topic,
                "members": group.members,
                "waiting_records": sum(group.waiting.values()),
                "waiting_at_most": bool(group.at_most),
                "oldest_checkpoint_at": min(group.saved_at.values(), default=None),
            }
            for group in facts.kafka.groups
        ],
        "tables_written_at": facts.store.written_at,
    }


def as_text(facts: Facts, findings: Sequence[Finding], width: int | None = None) -> Iterator[str]:
    """Yield lines: the verdict, the findings, the sources, the agents; texts and table fit into `width`."""
    severities = Counter(finding.severity for finding in findings)
    more = [counted(number, severity) for severity, number in severities.items()]
    yield f"verdict: {VERDICTS[exit_code(findings)]}" + (f" ({', '.join(more)})" if more else "")
    for finding in findings:
        yield ""
        yield from _wrapped(f"{finding.severity.upper()} {finding.code}: {finding.message}", width)
        if finding.subjects:
            others = len(finding.subjects) - SHOWN_SUBJECTS
            rest = f" and {others} more" if others > 0 else ""
            yield from _wrapped(f"  at: {', '.join(finding.subjects[:SHOWN_SUBJECTS])}{rest}", width)
        if finding.remedy:
            yield from _wrapped(f"  do: {finding.remedy}", width)
    yield ""
    rows = [_COLUMNS, *(_cells(_figures(facts, source)) for source in facts.sources())]
    if len(rows) > 1:
        yield from text_table(rows, width=width, expendable=_EXPENDABLE)
        yield ""
    for group in facts.kafka.groups:
        waiting = group.waiting_in_words()
        waits = f"{waiting} {'record waits' if waiting == '1' else 'records wait'}"
        yield f"{group.name}: {counted(group.members, 'worker')}, {waits}, {_saved(group, facts.at)}"
    if facts.store.written_at is not None:
        yield f"tables: last written {max(0.0, facts.at - facts.store.written_at):.0f} s ago"


def _saved(group: GroupFacts, at: float) -> str:
    """Return when the newest and the oldest of a group's partitions were saved."""
    ages = sorted({f"{max(0.0, at - saved):.0f}" for saved in group.saved_at.values()}, key=int)
    if len(ages) < 2:
        return f"checkpoint {ages[0]} s ago" if ages else "no checkpoint"
    return f"checkpoints {ages[0]} to {ages[-1]} s ago"


def _wrapped(line: str, width: int | None) -> list[str]:
    """Return the line in lines of at most `width`, those that follow the first one indented."""
    line = printable(line)
    if width is None:
        return [line]
    return textwrap.wrap(
        line, width, subsequent_indent="      ", break_long_words=False, break_on_hyphens=False
    )


def _figures(facts: Facts, source: SourceId) -> dict[str, Any]:
    row, session = facts.store.health.get(source), facts.store.sessions.get(source)
    log, position = facts.kafka.log.get(source), facts.kafka.positions.get(source)
    heard = row if row and row.last_seq >= 0 else None
    return {
        "replica": source[0],
        "dp_rank": source[1],
        "connected": row.connected if row else None,
        "last_batch_at": row.last_batch_at if row else None,
        "incarnation": row.incarnation if row else session.incarnation if session else None,
        "position_seq": position.seq if position else None,
        "log_seq": log.last_seq if log else None,
        "table_seq": heard.last_seq if heard else session.last_seq if session else None,
        "gap_batches": row.gap_batches if row else None,
        "replayed_batches": row.replayed_batches if row else None,
        "lost_batches": row.lost_batches if row else None,
        "trust": session.trust if session else heard.trust if heard else None,
        "trust_since": session.trust_since if session else None,
        "drift_blocks": row.drift_blocks if row else None,
        "drift_since": row.drift_since if row else None,
        "closed": session.closed_reason if session and session.closed_at is not None else None,
        "hash_domain": session.hash_domain if session else None,
        "engine": session.engine if session else None,
        "wire_era": session.wire_era if session else None,
    }


def _cells(figures: dict[str, Any]) -> tuple[str, ...]:
    def shown(name: str) -> str:
        return "-" if figures[name] is None else str(figures[name])

    def at(name: str) -> str:
        return "-" if figures[name] is None else clock(figures[name])

    connected = {True: "yes", False: "NO", None: "-"}[figures["connected"]]
    filled = "-" if figures["gap_batches"] is None else str(figures["gap_batches"] - figures["lost_batches"])
    return (
        f"{figures['replica']}/{figures['dp_rank']}",
        f"{connected} ({figures['closed']})" if figures["closed"] else connected,
        at("last_batch_at"),
        shown("position_seq"),
        shown("log_seq"),
        shown("table_seq"),
        shown("lost_batches"),
        filled,
        shown("trust"),
        at("trust_since"),
        shown("drift_blocks"),
    )
