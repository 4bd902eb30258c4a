"""The fleet agent's rows of generated records, and the recount that they are compared with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from types import MappingProxyType
from typing import Any

from pipeline.fleet.state import FleetState
from pipeline.kafka.refusal import RecordRefused
from pipeline.verify.findings import Findings
from pipeline.verify.fleet.check import ShardCheck, Written
from pipeline.verify.keys import key_of
from schemas.fleet_rows import RedundancyRow
from schemas.residency import ResidencyRecord
from schemas.settings import Fleet

LONG_AGO = datetime(1970, 1, 1, tzinfo=timezone.utc)


Refused = Mapping[int, RecordRefused]
"""Number of a record -> the one behind it that is set aside."""


def rows_of(
    records: list[ResidencyRecord],
    fleet: Fleet,
    *,
    every: int = 1,
    killed: tuple[int, ...] = (),
    refused: Refused = MappingProxyType({}),
    forget: float = 86_400.0,
) -> list[Any]:
    """Winning rows of all cuts; `killed`: records after which the state is lost and loaded again."""
    state = FleetState(0, fleet, carry_seconds=3600, forget_seconds=forget)
    table: dict[Any, Any] = {}
    saved: dict[bytes, bytes] = {}
    kills = set(killed)
    now = 0.0

    def insert(rows: list[Any]) -> None:
        for row in rows:
            known = table.get(key_of(row))
            if known is None or row.version >= known.version:
                table[key_of(row)] = row

    while state.next_offset < 2 * len(records) - 1:
        number = (state.next_offset + 1) // 2
        state.apply(2 * number, records[number])  # offsets have holes
        if number in refused:
            state.set_aside(2 * number + 1, refused[number])
        if number % every == 0:
            cut = state.cut(now)
            insert(cut.rows)
            saved.update(cut.checkpoints)
            now += 40.0  # a base at every other cut
        if number in kills:
            kills.remove(number)
            state = FleetState(0, fleet, carry_seconds=3600, forget_seconds=forget, latest=saved)
    insert(state.cut(now).rows)
    return list(table.values())


def compared(
    records: list[ResidencyRecord],
    rows: list[Any],
    fleet: Fleet,
    committed: int | None = None,
    refused: Refused = MappingProxyType({}),
    forget: float = 86_400.0,
) -> Findings:
    """`committed`: records that the rows rest on, if not all."""
    findings = Findings()
    ahead = 2 * (len(records) if committed is None else committed)
    check = ShardCheck(0, fleet, rows, findings, Written(ahead, LONG_AGO), forget_seconds=forget)
    for number, record in enumerate(records):
        check.apply(2 * number, record)
        if number in refused:
            check.set_aside(refused[number])
    check.finish(2 * len(records))
    return findings


def agree(findings: Findings, rows: Sequence[Any]) -> None:
    """Require that agent and recount have the same rows, each of them compared."""
    assert findings.equal, findings.kept[:3]
    assert sum(findings.compared.values()) == len(rows)


def resident_tokens(rows: Sequence[Any]) -> Counter[tuple[str, str, str, int]]:
    """Return the tokens of all physical copies at the end, by (hash domain, model, medium, group).

    What the generated records leave behind is known without agent and recount
    (`tests/support/inputs/fleet_walks.py`), so both cannot be wrong in the same way.
    """
    last = {}
    for row in sorted(rows, key=lambda row: getattr(row, "window", LONG_AGO)):
        if isinstance(row, RedundancyRow):
            last[row.hash_domain, row.model, row.medium, row.group_idx] = row.physical_tokens
    return +Counter(last)
