"""Tables of arrays as columns of checkpoint records, and back."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from pipeline.fleet.kernel.tables import BLOCK, LOSS, PAIR, Blocks, Losses, Pairs, mapped
from schemas.fleet_checkpoints import FleetPart, TableName

PART_BYTES = 4 << 20
"""Of a record, well below the topic's 8 MB bound."""

Columns = Sequence[npt.NDArray[Any]]
"""Arrays of rows, in most tables as many in each."""
Table = Columns | npt.NDArray[Any]
"""Columns, or the slots of a table of structured rows; those with a key of zero are free."""
Packed = Mapping[TableName, Sequence[bytes]]
"""The columns of each table of a base."""


class Rows(NamedTuple):
    """What a base has most of: the rows of its blocks, pairs and losses, of these the oldest first."""

    blocks: Blocks
    pairs: Pairs
    losses: Losses


_Table = TypeVar("_Table", bound=tuple[Any, ...])


def fields_of(rows: npt.NDArray[Any]) -> list[npt.NDArray[Any]]:
    """Return the columns of structured rows."""
    return [rows[name] for name in rows.dtype.names or ()]


def rows_of(kind: np.dtype[Any], packed: Sequence[bytes]) -> npt.NDArray[Any]:
    """Return the structured rows that `fields_of` took apart; none where nothing was packed."""
    names = kind.names or ()
    if not packed:
        return np.zeros(0, kind)
    columns = [np.frombuffer(column, kind[name]) for name, column in zip(names, packed, strict=True)]
    rows = np.zeros(len(columns[0]), kind)
    for name, column in zip(names, columns, strict=True):
        rows[name] = column
    return rows


def rows_in(packed: dict[TableName, list[bytes]]) -> Rows:
    """Take the rows of blocks, pairs and losses out of the tables of a base; none if not there."""
    return Rows(
        rows_of(BLOCK, packed.pop("blocks", ())),
        rows_of(PAIR, packed.pop("pairs", ())),
        rows_of(LOSS, packed.pop("losses", ())),
    )


def put_into(table: _Table, packed: Sequence[bytes]) -> _Table:
    """Return the table with its first rows as they were packed; what is missing is as it was.

    A table that is too small becomes as large as it must be.
    """
    if not packed:
        return table
    columns = iter(packed)

    def put(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        found = np.frombuffer(next(columns), array.dtype).reshape(-1, *array.shape[1:])
        whole = array if len(found) <= len(array) else np.zeros(found.shape, array.dtype)
        whole[: len(found)] = found
        return whole

    return mapped(table, put)


def parts_of(epoch: int, tables: Mapping[TableName, Table]) -> Iterator[FleetPart]:
    """Yield the parts of a base, none of a table without rows; a part is packed when it is asked for."""
    for name, table in tables.items():
        for columns in _portions(table):
            yield FleetPart(epoch, name, [column.tobytes() for column in columns])


def _portions(table: Table) -> Iterator[Columns]:
    if isinstance(table, np.ndarray):
        slots = max(1, PART_BYTES // table.dtype.itemsize)
        # Whole rows are taken as bytes, because column by column takes twice as long.
        as_bytes = np.dtype((np.void, table.dtype.itemsize))
        for start in range(0, len(table), slots):
            rows = table[start : start + slots]
            used = rows["key"] != 0
            if used.any():
                yield fields_of(rows.view(as_bytes)[used].view(table.dtype))
    else:
        row_bytes = sum(column.dtype.itemsize * math.prod(column.shape[1:]) for column in table)
        rows_each = max(1, PART_BYTES // row_bytes)
        for start in range(0, max(map(len, table)), rows_each):
            yield [column[start : start + rows_each] for column in table]


def joined(parts: Sequence[FleetPart]) -> dict[TableName, list[bytes]]:
    """Return the columns of the tables that the parts are of, in their order."""
    tables: dict[TableName, list[list[bytes]]] = {}
    for part in parts:
        tables.setdefault(part.table, []).append(part.columns)
    return {
        name: [b"".join(pieces) for pieces in zip(*columns, strict=True)] for name, columns in tables.items()
    }
