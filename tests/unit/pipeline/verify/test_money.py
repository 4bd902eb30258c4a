"""Costs that differ are looked at again: what is late is what the rows behind it changed, and counts once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from typing import Any, cast

import pytest

from pipeline.verify.findings import Findings
from pipeline.verify.money.check import CHANGING, FROM_MINUTES, VIEW, check_money
from pipeline.verify.money.recount import LOST
from pipeline.verify.money.rows import inputs_of
from pipeline.verify.store import StoredTables

START = datetime(2026, 3, 1, 12, tzinfo=timezone.utc)
NOW = START + timedelta(hours=1)
LOOKS = 3
Rows = list[dict[str, Any]]


def fill(replica: str, tokens: int) -> dict[str, Any]:
    """A window in which a replica filled tokens that another had."""
    causes = (*LOST, "peer_at_receivers", "evicted_at_receivers", "lower_tier", "promoted")
    row = {f"{cause}_tokens": 0 for cause in causes}
    row |= {"filled_tokens": tokens, "peer_tokens": tokens}
    return row | {"window": START, "hash_domain": "m/x/t", "model": "m", "replica": replica, "group_idx": 0}


class Looked:
    """What the store answers, look by look: a view that is wrong, and the rows behind it."""

    def __init__(self, *fills: Rows, seconds: int = 10, hits: int = 0, hits_before: int = 0) -> None:
        self.fills, self.seconds, self.hits, self.hits_before = fills, seconds, hits, hits_before
        self.looks = -1
        self.at = 0.0

    def asked(self, statement: str, parameters: dict[str, Any]) -> Iterator[dict[str, Any]]:
        answers: dict[str, Callable[[], Rows]] = {
            "SELECT DISTINCT": lambda: [{"start": START}],
            "finest(": lambda: [{"seconds": self.seconds}],
            "prefill_costs(": self._view,
            "fills_10s": lambda: self.fills[min(self.looks, len(self.fills) - 1)],
            "AS queries": self._scrapes,
            "engine_counters": list,
            "sources": list,
            "prefill_settings": self._settings,
        }
        yield from next(answer for word, answer in answers.items() if word in statement)()

    def _view(self) -> Rows:
        self.looks += 1
        return []

    def _scrapes(self) -> Rows:
        return [
            {
                "model": "m",
                "replica": "a",
                "dp_rank": 0,
                "time": START,
                "queries": 9,
                "hits": self.hits_before,
            },
            {"model": "m", "replica": "a", "dp_rank": 0, "time": START, "queries": 99, "hits": self.hits},
        ]

    def _settings(self) -> Rows:
        settings = {"prefill_tokens_per_second": 10.0, "gpus_per_replica": 1, "gpu_hour_price": None}
        return [{"model": "m", "since": START, "currency": "EUR", **settings}]

    def sleep(self, seconds: float) -> None:
        self.at += seconds

    def findings(self) -> Findings:
        findings = Findings()
        check_money(
            cast(StoredTables, self),
            findings,
            oldest=START,
            now=NOW,
            patience=0.5 * (LOOKS - 1),
            clock=lambda: self.at,
            sleep=self.sleep,
        )
        assert self.looks == LOOKS - 1
        return findings


def test_rows_in_another_order_make_nothing_late() -> None:
    rows = [fill("a", tokens) for tokens in (1, 2, 3)]
    assert sum(0.1 * tokens for tokens in (1, 2, 3)) != sum(0.1 * tokens for tokens in (3, 2, 1))
    findings = Looked(rows, rows[::-1]).findings()
    assert (findings.differing, findings.late) == ({VIEW: 1}, {})


def test_only_what_changed_itself_is_late() -> None:
    findings = Looked([fill("a", 16), fill("b", 16)], [fill("a", 32), fill("b", 16)]).findings()
    assert findings.late == {(VIEW, CHANGING): 1}
    assert [one.key["replica"] for one in findings.kept] == ["b"]


@pytest.mark.parametrize("seconds", [10, 60])
def test_what_is_not_compared_counts_once(seconds: int) -> None:
    findings = Looked([fill("a", 16)], seconds=seconds, hits=48).findings()
    compared = 2 if seconds == 10 else 1
    assert (findings.compared[VIEW], findings.differing[VIEW]) == (compared, compared)
    assert findings.left_out == ({} if seconds == 10 else {FROM_MINUTES: 1})


def test_an_engine_whose_hits_fell_began_again() -> None:
    tables = cast(StoredTables, Looked([], hits=5, hits_before=8))
    assert [hit for *_, hit in inputs_of(tables, START).hits] == [0, 5]
