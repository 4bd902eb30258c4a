"""The compiled loop that joins plain runs of a source which continue each other."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from connectors.process.compiled import borrowed, compiled
from pipeline.reading.scan import RUN, Ints
from pipeline.reading.windows import WINDOW_SECONDS

Runs = npt.NDArray[Any]
"""Of RUN."""


def joined(runs: Runs, goes_on: npt.NDArray[np.bool_]) -> tuple[Runs, Ints]:
    """Return m runs, joined where one continues the one before, and (m, 2) first of the runs in each and end.

    `goes_on` (n,) says whether a run is of the same source as the one before, and their records state the
    same apart from batches. What is not plain is left out.
    """
    found, parts = np.empty(len(runs), RUN), np.empty((len(runs), 2), np.int64)
    count = join_runs(runs, goes_on, found, parts)
    return found[:count], parts[:count]


@compiled
def join_runs(runs: Runs, goes_on: npt.NDArray[np.bool_], found: Runs, parts: Ints) -> int:
    """Fill `found` and `parts`, which have room for all; return how many there are.

    A run continues those before it only if its number follows theirs, and if all are in one window.
    """
    runs, goes_on, found, parts = borrowed(runs), borrowed(goes_on), borrowed(found), borrowed(parts)
    count = 0
    follows = False
    for at in range(len(runs)):
        run = runs[at]
        if run.batches == 0:
            follows = False
            continue
        if follows and goes_on[at]:
            whole = found[count - 1]
            first_time = min(whole.first_time, run.first_time)
            last_time = max(whole.last_time, run.last_time)
            if (
                run.first_seq == whole.last_seq + 1
                and first_time // WINDOW_SECONDS == last_time // WINDOW_SECONDS
            ):
                whole.batches += run.batches
                whole.end, whole.hashes_end, whole.last_seq = run.end, run.hashes_end, run.last_seq
                whole.engine_events += run.engine_events
                whole.shapes |= run.shapes
                whole.pools |= run.pools
                whole.has_loras |= run.has_loras
                whole.has_links |= run.has_links
                whole.first_time, whole.last_time = first_time, last_time
                whole.time, whole.received_at = run.time, run.received_at
                whole.latest_receipt = max(whole.latest_receipt, run.latest_receipt)
                whole.lag = max(whole.lag, run.lag)
                parts[count - 1, 1] = at + 1
                continue
        found[count] = run
        parts[count, 0], parts[count, 1] = at, at + 1
        count += 1
        follows = True
    return count
