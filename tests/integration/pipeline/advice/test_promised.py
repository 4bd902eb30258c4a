"""What findings promise is what a recount has, and what comes of it when somebody does as advised.

tests/bench/RESULTS.md has the table; a row that is not there is in the message of the failure.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import clickhouse_connect
import pytest

from tests.support.advice.cases import CASES, NEW_PROMPT, Case
from tests.support.advice.played import BEGINS, BYTES_PER_TOKEN, rows_of
from tests.support.advice.recount import AVOIDABLE, Recounted, recount, shared_copies
from tests.support.advice.scenario import BLOCK, Scenario
from tests.support.checkout import ROOT
from tests.support.inputs.board_rows import write_rows
from tests.support.inputs.empty_tables import EmptyTables
from tests.support.suite.night import by_day

PAGE = ROOT / "tests" / "bench" / "RESULTS.md"
FIRST, LAST = "<!-- promised -->\n", "<!-- /promised -->\n"
HEAD = (
    "| fleet | finding | done | promised | at least | at most | came of it |",
    "| --- | --- | --- | ---: | ---: | ---: | ---: |",
)
OF_THE_DAY = [next(case for case in CASES if case.kind == "routing")]
IDS = [f"{case.kind}: {case.title}, {case.done}" for case in CASES]


class Told(NamedTuple):
    """What the tables say of a scenario."""

    findings: list[dict[str, Any]]
    avoidable: int

    def of(self, kind: str) -> dict[str, Any]:
        """The first finding of a kind."""
        return next(each for each in self.findings if each["kind"] == kind)


Tell = Callable[[Scenario], Told]


@pytest.fixture(scope="module")
def tell(empty_tables: EmptyTables) -> Tell:
    known: dict[int, tuple[Scenario, Told]] = {}

    def ask(scenario: Scenario) -> Told:
        if id(scenario) not in known:
            with empty_tables.lent() as settings:
                write_rows(settings, rows_of(scenario))
                client = clickhouse_connect.get_client(
                    dsn=settings.clickhouse.url, database=settings.clickhouse.database
                )
                between = {"from": BEGINS, "to": end_of(scenario)}
                rows = client.query(
                    "SELECT * FROM advice(from = {from:DateTime}, to = {to:DateTime})", parameters=between
                )
                avoidable = client.query(
                    "SELECT sum(avoidable_tokens)"
                    " FROM replica_facts(from = {from:DateTime}, to = {to:DateTime})",
                    parameters=between,
                )
                client.close()
            told = Told(list(rows.named_results()), avoidable.result_rows[0][0])
            known[id(scenario)] = scenario, told
        return known[id(scenario)][1]

    return ask


@pytest.fixture(scope="module")
def counted() -> Callable[[Scenario], Recounted]:
    known: dict[int, tuple[Scenario, Recounted]] = {}

    def count(scenario: Scenario) -> Recounted:
        if id(scenario) not in known:
            known[id(scenario)] = scenario, recount(scenario)
        return known[id(scenario)][1]

    return count


def end_of(scenario: Scenario) -> datetime:
    return BEGINS + timedelta(seconds=int(scenario.requests[-1].seconds))


def knee(curve: dict[int, int]) -> int:
    """The size at which the part saved is furthest ahead of the part of the size."""
    largest = max(curve)
    return max(sorted(curve), key=lambda size: curve[size] / curve[largest] - size / largest)


def numbers(finding: dict[str, Any]) -> list[int]:
    """The replicas that a finding is about."""
    return [int(each.removeprefix("r")) for each in finding["replicas"]]


def promised(case: Case, found: Recounted, finding: dict[str, Any]) -> tuple[int, int, int]:
    """Return the figure and its bounds as a recount has them."""
    if case.kind == "routing":
        return found.tokens("peer", "peer_and_evicted"), 0, found.tokens(*AVOIDABLE)
    if case.kind == "capacity":
        these = numbers(finding)
        curve = found.curve(these)
        saved = curve[knee(curve)]
        evicted = sum(found.tokens("evicted", "peer_and_evicted", replica=each) for each in these)
        return saved, saved, evicted
    if case.kind == "restarts":
        cleared = found.tokens("cleared")
        return int(cleared * shared_copies(case.wrong, 590.0)), 0, cleared
    if case.kind == "prefix":
        refilled = found.tokens(*AVOIDABLE, root=NEW_PROMPT)
        return refilled, 0, refilled
    # How much of it counts as unknown is for the agent to say: it needs some evidence first.
    return finding["tokens"], 0, found.tokens("cold")


@pytest.mark.parametrize("case", by_day(CASES, OF_THE_DAY), ids=IDS)
def test_a_finding_promises_what_a_recount_finds_and_is_kept(
    case: Case, tell: Tell, counted: Callable[[Scenario], Recounted]
) -> None:
    told, wrong = tell(case.wrong), counted(case.wrong)
    finding = told.of(case.kind)
    bounds = finding["tokens"], finding["at_least"], finding["at_most"]
    if case.kind == "streams":
        # A recount of what nobody heard is none: what it heard is checked by `kvlens verify`.
        assert 0 < finding["tokens"] <= finding["at_most"] <= wrong.tokens()
    else:
        assert bounds == promised(case, wrong, finding)
    real = came_of_it(
        case, wrong, counted(case.right(extra_blocks(case, wrong, finding), numbers(finding))), told
    )
    assert (0 if case.only_about else finding["at_least"]) <= real <= finding["at_most"]
    assert real > 0
    table = PAGE.read_text("utf-8").split(FIRST)[1].split(LAST)[0].strip().splitlines()
    assert table[:2] == [*HEAD]
    assert len(table) == len(HEAD) + len(CASES)
    assert row(case, finding, real) in table


def extra_blocks(case: Case, wrong: Recounted, finding: dict[str, Any]) -> int:
    if case.kind != "capacity":
        return 0
    tokens = knee(wrong.curve(numbers(finding)))
    mebibytes = tokens * BYTES_PER_TOKEN // 2**20
    size = f"{mebibytes} MiB" if mebibytes < 1024 else f"{mebibytes // 1024} GiB"
    assert f" {size} more KV cache" in finding["action"]
    return tokens // BLOCK


def came_of_it(case: Case, wrong: Recounted, right: Recounted, told: Told) -> int:
    """Prefill that was saved; of findings about what nobody can see, avoidable prefill that came to light."""
    if case.kind in ("hashes", "streams"):
        return right.tokens(*AVOIDABLE) - told.avoidable
    return wrong.prefilled - right.prefilled


def row(case: Case, finding: dict[str, Any], real: int) -> str:
    at_least = "" if case.only_about or not finding["at_least"] else f"{finding['at_least']:,}"
    return (
        f"| {case.title} | {case.kind} | {case.done} | {finding['tokens']:,} | {at_least} | "
        f"{finding['at_most']:,} | {real:,} |"
    )
