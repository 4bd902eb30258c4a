"""What a comparison found, as lines and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from pipeline.verify.findings import Difference, Findings

_VERDICTS = {
    "equal": "the tables are what the log says",
    "different": "the tables are not what the log says",
    "late": "nothing differs, but some rows could not be compared yet: run it again later",
}


def as_text(findings: Findings) -> Iterator[str]:
    """Yield the lines that people read."""
    reasons = ", ".join(f"{reason} {count:,}" for reason, count in sorted(findings.set_aside.items()))
    set_aside = f", {findings.set_aside.total():,} of them set aside ({reasons})" * bool(reasons)
    yield f"{findings.records:,} records of the log{set_aside}"
    for table in _tables(findings):
        differing, late = findings.differing[table], findings.late_rows(table)
        said = [f"{differing:,} differ"] * bool(differing) + [f"{late:,} late"] * bool(late)
        yield f"  {table:<20} {findings.compared[table]:>9,} rows  {', '.join(said) or 'equal'}"
    for table, since in sorted(findings.compared_from.items()):
        yield f"{table} is compared from {_plain(since)} on: the log of the fleet does not reach back further"
    for reason, rows in sorted(findings.left_out.items()):
        yield f"not compared: {rows:,} ({reason})"
    for (table, reason), rows in sorted(findings.late.items()):
        yield f"late: {rows:,} of {table} ({reason})"
    if findings.removed:
        yield f"lost: {findings.removed:,} records were removed from the log before a worker read them"
    if findings.degraded:
        yield (
            f"degraded: {findings.degraded:,} sources lack batches or records that were lost; where their "
            "rows are equal they say what the log has, not what the engines hold"
        )
    for difference in findings.kept:
        yield from _difference(difference)
    left_out = sum(findings.differing.values()) - len(findings.kept)
    if left_out:
        yield f"and {left_out:,} more"
    yield _VERDICTS[findings.verdict]


def as_json(findings: Findings) -> dict[str, Any]:
    """Return the same for programs."""
    return {
        "verdict": findings.verdict,
        "equal": findings.equal,
        "records": findings.records,
        "set_aside": dict(sorted(findings.set_aside.items())),
        "tables": {
            table: {
                "compared": findings.compared[table],
                "differing": findings.differing[table],
                "late": findings.late_rows(table),
            }
            for table in _tables(findings)
        },
        "removed_records": findings.removed,
        "degraded_sources": findings.degraded,
        "not_compared": dict(findings.left_out),
        "compared_from": {table: _plain(since) for table, since in sorted(findings.compared_from.items())},
        "late": [
            {"table": table, "reason": reason, "rows": rows}
            for (table, reason), rows in sorted(findings.late.items())
        ],
        "differences": [
            {
                "table": one.table,
                "key": {name: _plain(value) for name, value in one.key.items()},
                "kind": one.kind,
                "expected": {name: _plain(value) for name, value in one.expected.items()},
                "found": {name: _plain(value) for name, value in one.found.items()},
                "remarks": list(one.remarks),
            }
            for one in findings.kept
        ],
    }


def _tables(findings: Findings) -> list[str]:
    return sorted({*findings.compared, *findings.differing, *(table for table, _ in findings.late)})


def _difference(one: Difference) -> Iterator[str]:
    yield f"{one.table} {' '.join(f'{name}={_plain(value)}' for name, value in one.key.items())}: {one.kind}"
    for name in {**one.expected, **one.found}:
        wanted = _plain(one.expected[name]) if name in one.expected else "-"
        has = _plain(one.found[name]) if name in one.found else "-"
        yield f"    {name}: the log says {wanted}, the table {has}"
    for remark in one.remarks:
        yield f"    {remark}"


def _plain(value: Any) -> Any:
    return value.isoformat(timespec="milliseconds") if isinstance(value, datetime) else value
