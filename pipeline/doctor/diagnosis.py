"""The diagnosis: all findings that follow from the facts, the worst first. Pure."""

from __future__ import annotations

from itertools import chain

from pipeline.doctor.engine_checks import engine_findings
from pipeline.doctor.facts import Facts
from pipeline.doctor.finding import Finding
from pipeline.doctor.hash_checks import hash_findings
from pipeline.doctor.kafka_checks import kafka_findings
from pipeline.doctor.source_checks import source_findings
from pipeline.doctor.table_checks import table_findings

_ORDER = ("problem", "unknown", "note")


def diagnose(facts: Facts) -> list[Finding]:
    """Return what is wrong, what could not be seen, and what is worth knowing, in this order."""
    checks = (kafka_findings, table_findings, source_findings, engine_findings, hash_findings)
    found = chain.from_iterable(check(facts) for check in checks)
    return sorted(found, key=lambda finding: _ORDER.index(finding.severity))
