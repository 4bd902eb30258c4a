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
"""Size of a record, well below the topic's limit of 8 MB."""

Columns = Sequence[npt.NDArray[Any]]
"""One array per column, in most tables all of the same length."""
Table = Columns | npt.NDArray[Any]
"""Columns, or the slots of a table of structured rows; those with a key of zero are free."""
Packed = Mapping[TableName, Sequence[bytes]]
"""The columns of each table of a base."""


class Rows(NamedTuple):
    """The largest tables of a base: its blocks, its pairs and its losses, oldest first."""

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
    """Remove the blocks, pairs and losses from the tables of a base and return them; none if not there."""
    return Rows(
        rows_of(BLOCK, packed.pop("blocks", ())),
        rows_of(PAIR, packed.pop("pairs", ())),
        rows_of(LOSS, packed.pop("losses", ())),
    )


def put_into(table: _Table, packed: Sequence[bytes]) -> _Table:
    """Return the table with its first rows replaced by those that were packed, if any.

    A table that is too small grows to their number.
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
    """Yield the parts of a base, none for an empty table; each is packed only when it is asked for."""
    for name, table in tables.items():
        for columns in _portions(table):
            yield FleetPart(epoch, name, [column.tobytes() for column in columns])


def _portions(table: Table) -> Iterator[Columns]:
    if isinstance(table, np.ndarray):
        slots = max(1, PART_BYTES // table.dtype.itemsize)
        # Rows are selected as bytes: column by column it would take twice as long.
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
    """Return the columns of each table, joined from its parts in their order."""
    tables: dict[TableName, list[list[bytes]]] = {}
    for part in parts:
        tables.setdefault(part.table, []).append(part.columns)
    return {
        name: [b"".join(pieces) for pieces in zip(*columns, strict=True)] for name, columns in tables.items()
    }
