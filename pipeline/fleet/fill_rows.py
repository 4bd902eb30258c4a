"""Rows of fills and of the capacity curve, built column by column, which makes a row per source cheap."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pipeline.fleet.causes import CAUSES, PARTS, REANNOUNCED
from pipeline.fleet.kernel.counts import Cells
from pipeline.fleet.kernel.tables import I64
from pipeline.reading import windows
from schemas.fleet_rows import CapacityCurveRow, FillsRow
from schemas.rows import Row
from schemas.trust import TRUST_ORDER


class Place(NamedTuple):
    """Whose figures a cell holds."""

    hash_domain: str
    model: str
    replica: str
    dp_rank: int
    group_idx: int


def fill_rows(cells: Cells, numbers: I64, places: Sequence[Place], *, shard: int, one_in: int) -> list[Row]:
    """Return the rows of the cells with these numbers; `places` says whose each one is."""
    if not places:
        return []
    blocks, tokens = cells.blocks[numbers] * one_in, cells.tokens[numbers] * one_in
    opened = cells.windows[numbers].tolist()
    starts = {window: windows.window_start(window) for window in set(opened)}
    columns: dict[str, Sequence[Any]] = dict(zip(Place._fields, zip(*places, strict=True), strict=True))
    columns |= {
        "window": [starts[window] for window in opened],
        "shard": [shard] * len(places),
        "filled_blocks": blocks[:, :REANNOUNCED].sum(axis=1).tolist(),
        "filled_tokens": tokens[:, :REANNOUNCED].sum(axis=1).tolist(),
        "regret_hist": _trimmed(cells.regret[numbers] * one_in),
        "sampled_one_in": [one_in] * len(places),
        "trust": [TRUST_ORDER[trust] for trust in cells.trusts[numbers].tolist()],
        "version": cells.versions[numbers].tolist(),
    }
    columns |= {f"{cause}_blocks": column for cause, column in zip(CAUSES, blocks.T.tolist(), strict=True)}
    columns |= {f"{cause}_tokens": column for cause, column in zip(CAUSES, tokens.T.tolist(), strict=True)}
    parts = (cells.parts[numbers] * one_in).T.tolist()
    columns |= {f"{part}_tokens": column for part, column in zip(PARTS, parts, strict=True)}
    rows: list[Row] = list(map(FillsRow, *[columns[name] for name in FillsRow.__struct_fields__]))
    needed = cells.needed[numbers]
    curved = np.flatnonzero(needed.any(axis=1))
    at = curved.tolist()
    columns = {name: [column[row] for row in at] for name, column in columns.items() if name in _OF_A_CURVE}
    columns["needed_hist"] = _trimmed(needed[curved] * one_in)
    rows += map(CapacityCurveRow, *[columns[name] for name in CapacityCurveRow.__struct_fields__])
    return rows


_OF_A_CURVE = frozenset(CapacityCurveRow.__struct_fields__)


def _trimmed(counts: npt.NDArray[np.int64]) -> list[list[int]]:
    """Return every row of counts without trailing zeros."""
    used = counts != 0
    lengths = np.where(used.any(axis=1), counts.shape[1] - used[:, ::-1].argmax(axis=1), 0)
    longest = int(lengths.max(initial=0))
    return [row[:length] for row, length in zip(counts[:, :longest].tolist(), lengths.tolist(), strict=True)]
