"""Records read as runs, each by itself."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.reading.plain_runs import PlainRun
from pipeline.reading.records import read
from schemas.settings import Worker


def plain_runs(values: Sequence[bytes | None], settings: Worker, *, first: int = 0) -> list[PlainRun | None]:
    """Return the run of each value, None where it is not plain; the values have offsets from `first` on."""
    found: list[PlainRun | None] = [None] * len(values)
    for run in read(values, settings, offsets=range(first, first + len(values))).runs:
        for number, offset in enumerate(run.offsets.tolist()):
            found[offset - first] = run.part(number, number + 1)
    return found
