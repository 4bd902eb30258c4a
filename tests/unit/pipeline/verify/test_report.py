"""What verify prints: late is not different, and nothing that a person cannot read."""

from __future__ import annotations

from datetime import datetime, timezone

from pipeline.verify.findings import Difference, Findings
from pipeline.verify.report import as_json, as_text

AT = datetime(2026, 3, 4, 11, 59, tzinfo=timezone.utc)


def test_rows_that_are_late_have_a_reason_and_are_no_difference() -> None:
    findings = Findings(records=1234)
    findings.compared.update({"flow_1m": 5, "flow_10s": 30})
    findings.late["flow_1m", "too early"] += 2
    assert list(as_text(findings)) == [
        "1,234 records of the log",
        "  flow_10s                    30 rows  equal",
        "  flow_1m                      5 rows  2 late",
        "late: 2 of flow_1m (too early)",
        "nothing differs, but some rows could not be compared yet: run it again later",
    ]
    told = as_json(findings)
    assert (told["verdict"], told["equal"]) == ("late", False)
    assert told["late"] == [{"table": "flow_1m", "reason": "too early", "rows": 2}]
    assert told["tables"]["flow_1m"] == {"compared": 5, "differing": 0, "late": 2}


def test_differences_count_more_than_what_is_late() -> None:
    findings = Findings()
    findings.late["flow_1m", "too early"] += 1
    findings.differ(Difference("flow_1m", {"window": AT}, "differs", {"windows": 6}, {"windows": 5}, ("so",)))
    lines = list(as_text(findings))
    assert lines[1] == "  flow_1m                      0 rows  1 differ, 1 late"
    assert lines[-4:] == [
        "flow_1m window=2026-03-04T11:59:00.000+00:00: differs",
        "    windows: the log says 6, the table 5",
        "    so",
        "the tables are not what the log says",
    ]
    told = as_json(findings)
    assert (told["verdict"], told["equal"]) == ("different", False)
    assert told["differences"][0]["remarks"] == ["so"]


def test_nothing_to_say_is_equal() -> None:
    findings = Findings()
    findings.compared["flow_1m"] += 1
    assert list(as_text(findings))[-1] == "the tables are what the log says"
    assert (as_json(findings)["verdict"], as_json(findings)["equal"]) == ("equal", True)


def test_what_was_lost_is_said_beside_equal_tables() -> None:
    findings = Findings(removed=42, degraded=2)
    lost, degraded, verdict = [*as_text(findings)][-3:]
    assert lost == "lost: 42 records were removed from the log before a worker read them"
    assert degraded.startswith("degraded: 2 sources lack batches or records that were lost")
    assert verdict == "the tables are what the log says"
    told = as_json(findings)
    assert (told["removed_records"], told["degraded_sources"]) == (42, 2)
