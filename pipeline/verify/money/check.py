"""Compares the view of costs with a recount, while a worker may be writing the rows behind both."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import asdict
from datetime import datetime
from typing import Any

from pipeline.verify.findings import Findings, difference
from pipeline.verify.money.recount import Cost, Key, costs
from pipeline.verify.money.rows import LENGTH, costs_in_view, half_hours, inputs_of, read_from
from pipeline.verify.store import StoredTables

VIEW = "prefill_costs"
MOST = 4
"""Half hours to compare: the last ones."""
FROM_MINUTES = "hits of half hours that the view reads from minutes"
CHANGING = "rows of that half hour were written during the comparison"
_LOOK_AGAIN_SECONDS = 0.5
_CLOSE = 1e-9
"""Relative tolerance: both add up floats, each in its own order."""

_Costs = dict[Key, Cost]


def check_money(
    tables: StoredTables,
    findings: Findings,
    *,
    oldest: datetime,
    now: datetime,
    patience: float,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Compare the last half hours that are over at `now` and have fills, from `oldest` on.

    What differs is looked at again for `patience` seconds. It is late, and not different, if its recount
    changed meanwhile.
    """
    over = [start for start in half_hours(tables, oldest, MOST + 1) if start + LENGTH <= now][:MOST]
    for start in over:
        until = clock() + patience
        wanted, has, left_out = _looked(tables, start)
        first = wanted
        while _differing(wanted, has) and clock() < until:
            sleep(_LOOK_AGAIN_SECONDS)
            wanted, has, left_out = _looked(tables, start)
        if left_out:
            findings.left_out[FROM_MINUTES] += left_out
        findings.compared[VIEW] += len(wanted)
        for key in _differing(wanted, has):
            if not _equal(wanted.get(key), first.get(key)):
                findings.late[VIEW, CHANGING] += 1
            else:
                named = {"from": start, **key._asdict()}
                findings.differ(difference(VIEW, named, _figures(wanted, key), _figures(has, key), _same))


def _looked(tables: StoredTables, start: datetime) -> tuple[_Costs, _Costs, int]:
    """Return the recount from the rows, what the view says, and how many rows of hits are in neither."""
    has, wanted = costs_in_view(tables, start), costs(inputs_of(tables, start))
    if read_from(tables, start) == 10:
        return wanted, has, 0
    compared = _without_hits(wanted)
    return compared, _without_hits(has), len(wanted) - len(compared)


def _figures(found: _Costs, key: Key) -> dict[str, Any] | None:
    return asdict(found[key]) if key in found else None


def _without_hits(found: _Costs) -> _Costs:
    return {key: cost for key, cost in found.items() if key.cause != "gpu"}


def _differing(wanted: _Costs, has: _Costs) -> list[Key]:
    return [key for key in sorted({**wanted, **has}) if not _equal(wanted.get(key), has.get(key))]


def _equal(one: Cost | None, other: Cost | None) -> bool:
    if one is None or other is None:
        return one is other
    return all(_same(value, asdict(other)[name]) for name, value in asdict(one).items())


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=_CLOSE)
    return bool(one == other)
