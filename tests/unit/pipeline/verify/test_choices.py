"""What the comparison of choices finds, and what it leaves out."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

import msgspec
import pytest

from pipeline.generated.examples.catalogue import choice_examples
from pipeline.verify.choices import ChoicesCheck
from pipeline.verify.findings import Findings
from schemas.fleet_rows import ChoiceRow

RECORD = choice_examples()["worse"]
ROW = ChoiceRow(
    datetime(2026, 1, 1, 0, 0, 0, 500_000, timezone.utc), "qwen3-32b", "vllm-0", "req-8c1f", "default", "",
    40, 512, 128, "vllm-3", "", False, 0.031, "partial", False, 2**63 - 1 - 5,
)  # fmt: skip
replace = msgspec.structs.replace


def compared(
    *rows: ChoiceRow, begin: int = 0, committed: int = 10, end: int = 10, year: int = 2000
) -> Findings:
    """Of a log with the record at offset 5, and the same request posted again at 7."""
    findings = Findings()
    oldest = datetime(year, 1, 1, tzinfo=timezone.utc)
    check = ChoicesCheck(rows, findings, begin=begin, committed=committed, oldest=oldest)
    for offset in (5, 7):
        if begin <= offset < end:
            check.apply(offset, replace(RECORD, best_tokens=512 + offset - 5))
    check.finish(end)
    return findings


def test_the_first_record_of_a_request_is_its_row() -> None:
    findings = compared(ROW)
    assert (findings.equal, findings.compared["choices"], findings.left_out) == (True, 1, {})


@pytest.mark.parametrize(
    ("rows", "kind"),
    [
        ([], "missing"),
        ([replace(ROW, best_tokens=514, version=2**63 - 1 - 7)], "differs"),
        ([replace(ROW, chosen_tokens=127)], "differs"),
        ([replace(ROW, stale=True)], "differs"),
        ([ROW, replace(ROW, request_id="nobody's")], "unexpected"),
        ([ROW, replace(ROW, replica="vllm-1")], "unexpected"),
    ],
)
def test_each_difference_is_found(rows: list[ChoiceRow], kind: str) -> None:
    findings = compared(*rows)
    assert [one.kind for one in findings.kept] == [kind]
    assert findings.differing["choices"] == 1


@pytest.mark.parametrize(
    ("rows", "bounds", "left_out"),
    [
        ([], {"committed": 5}, 0),
        ([], {"year": 2027}, 1),
        ([ROW], {"begin": 6}, 1),
        ([ROW], {"end": 5}, 1),
    ],
)
def test_what_cannot_be_compared_is_left_out(
    rows: list[ChoiceRow], bounds: dict[str, Any], left_out: int
) -> None:
    findings = compared(*rows, **bounds)
    assert findings.equal
    assert findings.left_out.total() == left_out
