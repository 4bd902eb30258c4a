"""The diagnosis: all findings that follow from the facts, the worst first. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import chain

from pipeline.doctor.engine_checks import engine_findings
from pipeline.doctor.facts import Facts
from pipeline.doctor.finding import Finding
from pipeline.doctor.hash_checks import hash_findings
from pipeline.doctor.kafka_checks import kafka_findings
from pipeline.doctor.remark_checks import remark_findings
from pipeline.doctor.source_checks import source_findings
from pipeline.doctor.table_checks import table_findings

_ORDER = ("problem", "unknown", "note")


_OF_LOSS = {"trust-degraded", "drift"}
"""Codes of the findings that follow when batches are lost for good."""


def diagnose(facts: Facts, on_purpose: Mapping[str, str] | None = None) -> list[Finding]:
    """Return what is wrong, what could not be seen, and what is worth knowing, in this order.

    `on_purpose`: source as `replica/rank` -> why its losses are wanted; a finding about the losses of such
    sources only becomes a note.
    """
    checks = (
        kafka_findings,
        table_findings,
        source_findings,
        remark_findings,
        engine_findings,
        hash_findings,
    )
    found: Iterable[Finding] = chain.from_iterable(check(facts) for check in checks)
    found = (_excused(finding, on_purpose or {}) for finding in found)
    return sorted(found, key=lambda finding: _ORDER.index(finding.severity))


def _excused(finding: Finding, on_purpose: Mapping[str, str]) -> Finding:
    if finding.code not in _OF_LOSS or not finding.subjects or not set(finding.subjects) <= on_purpose.keys():
        return finding
    reasons = dict.fromkeys(on_purpose[subject] for subject in finding.subjects)
    return replace(finding, severity="note", remedy=f"nothing: {'; '.join(reasons)}")
