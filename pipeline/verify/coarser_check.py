"""Compares minutes and hours with the ten-second rows, while a worker may still be writing both."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from pipeline.verify.coarser import FAMILIES, PERIODS, Family, Periods, as_periods, coarser
from pipeline.verify.findings import Difference, Findings, Kind
from pipeline.verify.store import StoredTables
from pipeline.verify.times import start_of_period

BEING_WRITTEN = "minutes and hours that are still being written"
_LOOK_AGAIN_SECONDS = 1.0


def check_coarser(
    tables: StoredTables,
    findings: Findings,
    *,
    oldest: datetime,
    patience: float,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Compare all rollups of periods from `oldest` on.

    Workers recompute a period some time after its ten-second rows. So what differs is looked at again for
    `patience` seconds. It differs indeed if its ten-second rows stayed the same since the first look.
    """
    until = clock() + patience
    for name, family in FAMILIES.items():
        for suffix, length in PERIODS.items():
            table = f"{name}_{suffix}"
            whole_from = start_of_period(oldest, length) + length
            first = _look(tables, name, table, family, length, whole_from)
            wanted, has = first
            while _differing(wanted, has) and clock() < until:
                sleep(_LOOK_AGAIN_SECONDS)
                wanted, has = _look(tables, name, table, family, length, whole_from)
            for key in _differing(wanted, has):
                if first[0].get(key) == wanted.get(key):
                    _differ(findings, table, family, key, wanted.get(key), has.get(key))
                else:
                    findings.left_out[BEING_WRITTEN] += 1
            findings.compared[table] += len(wanted)


def _look(
    tables: StoredTables, name: str, table: str, family: Family, length: timedelta, after: datetime
) -> tuple[Periods, Periods]:
    # The coarser rows first: they may be older than the finer ones, never newer.
    has = as_periods(family, tables.rows(table, after))
    return coarser(family, length, tables.rows(f"{name}_10s", after)), has


def _differing(wanted: Periods, has: Periods) -> list[tuple[Any, ...]]:
    return [key for key in {**wanted, **has} if wanted.get(key) != has.get(key)]


def _differ(
    findings: Findings,
    table: str,
    family: Family,
    key: tuple[Any, ...],
    wanted: dict[str, Any] | None,
    has: dict[str, Any] | None,
) -> None:
    kind: Kind = "missing" if has is None else "unexpected" if wanted is None else "differs"
    columns = [c for c in {**(wanted or {}), **(has or {})} if (wanted or {}).get(c) != (has or {}).get(c)]
    findings.differ(
        Difference(
            table,
            dict(zip(("window", *family.key), key, strict=True)),
            kind,
            {column: wanted[column] for column in columns} if wanted else {},
            {column: has[column] for column in columns} if has else {},
        )
    )
