"""Borrowed arrays give what counted ones give, and nobody's references are lost or kept."""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from connectors.process.compiled import _version, borrowed, compiled, inlined, inner

ROW = np.dtype([("key", "<u8"), ("count", "<i8")], align=True)


class Columns(NamedTuple):
    numbers: npt.NDArray[np.int64]
    rows: npt.NDArray[Any]
    table: npt.NDArray[np.float64]


@inlined
def _add(columns: Columns, at: int) -> None:
    columns.rows[at].count += columns.numbers[at]
    columns.table[at, 1] += 0.5


@compiled
def _added(columns: Columns) -> int:
    columns = borrowed(columns)
    numbers = borrowed(columns.numbers)
    total = 0
    for at in range(len(numbers)):
        _add(columns, at)
        total += numbers[at]
    return total


def test_borrowed_arrays_are_read_and_written_in_place() -> None:
    columns = Columns(np.arange(1, 101), np.zeros(100, ROW), np.zeros((100, 2)))
    counted = [sys.getrefcount(column) for column in columns]
    for calls in range(1, 4):
        assert _added(columns) == 5050
        assert columns.rows["count"].tolist() == [calls * number for number in range(1, 101)]
        assert columns.table.sum() == calls * 50
    assert [sys.getrefcount(column) for column in columns] == counted


def test_views_can_be_borrowed() -> None:
    whole = Columns(np.arange(200), np.zeros(200, ROW), np.zeros((200, 2)))
    part = Columns(whole.numbers[:100].copy(), whole.rows[:100], whole.table[:100])
    assert _added(part) == 4950
    assert whole.rows["count"].tolist() == [*range(100)] + [0] * 100


def test_kept_code_is_not_used_when_what_it_calls_or_reads_has_changed() -> None:
    def version(of_callee: str, constant: object = 2) -> str:
        names: dict[str, Any] = {"CONSTANT": constant, "inner": inner, "inlined": inlined}
        exec(f"{of_callee}\ndef caller(x):\n    return callee(x) + CONSTANT", names)
        return _version(names["caller"])

    first = "@inlined\ndef callee(x):\n    return x + 1"
    assert version(first) == version(first)
    others = [
        version(first.replace("1", "3")),
        version(first.replace("+", "-")),
        version(first.replace("(x):", "(x, y=1):")),
        version(first.replace("(x):", "(x, y=2):")),
        version(first.replace("inlined", "inner")),
        version(first, 3),
        version(first, np.arange(3)),
    ]
    assert len({version(first), *others}) == 1 + len(others)
