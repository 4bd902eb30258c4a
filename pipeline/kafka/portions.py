"""Records in portions of bounded size."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

_Record = TypeVar("_Record")


def in_portions(
    records: Sequence[_Record],
    size_of: Callable[[_Record], int],
    *,
    most_bytes: int,
    most_records: int | None = None,
) -> Iterator[Sequence[_Record]]:
    """Yield all records in their order.

    A portion ends with the record that makes it `most_bytes` by `size_of`, or `most_records`.
    """
    begin = size = 0
    for end, record in enumerate(records, 1):
        size += size_of(record)
        if size >= most_bytes or end - begin == most_records:
            yield records[begin:end]
            begin, size = end, 0
    if begin < len(records):
        yield records[begin:]
