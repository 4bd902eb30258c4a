"""Rows of the prefixes with the most duplicated tokens, or the most tokens filled again, in a window."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from pipeline.fleet.index import Index
from pipeline.fleet.kernel.refills import FORGOTTEN, REFILL, slot_of_prefix
from pipeline.fleet.kernel.tables import I64
from pipeline.fleet.prefixes.shared import shared_prefixes
from pipeline.fleet.registry import Lineages
from pipeline.reading import windows
from schemas.fleet_rows import HotPrefixRow
from schemas.trust import TRUST_ORDER


def hot_prefixes(
    index: Index,
    lineages: Lineages,
    trusts: Mapping[int, int],
    *,
    window: int,
    shard: int,
    listed: int,
    one_in: int,
    version: int,
) -> list[HotPrefixRow]:
    """Return the top `listed` prefixes of each hash domain and group by duplicated, and by refilled tokens.

    Residency is that at the end of the window, refills are those since it began; `trusts` as in
    `OpenWindows.redundancy`.
    """
    if not listed:
        return []
    blocks, refills = index.blocks, index.refills
    refilled = refills.rows[refills.rows["root"] != 0]
    most_refilled = refilled[_largest(refilled, refilled["tokens"], listed, lineages)]
    shared, _ = shared_prefixes(blocks, most_refilled)
    most_duplicated = shared[_largest(shared, shared["duplicated"], listed, lineages)]
    names = sorted({_name(row) for each in (most_refilled, most_duplicated) for row in each})
    named = np.isin(shared["root"], np.array([root for root, _ in names], np.uint64))
    found = {_name(row): row for row in shared[named]}
    forgotten = int(refills.totals[FORGOTTEN]) * one_in
    rows = []
    for root, number in names:
        lineage = lineages.by_number[number]
        here, slot = found[root, number], slot_of_prefix(refills.rows, (np.uint64(root), number))
        again = refills.rows[slot] if slot >= 0 else np.zeros(1, REFILL)[0]
        space = lineage.space
        rows.append(
            HotPrefixRow(
                window=windows.window_start(window),
                hash_domain=space.hash_domain,
                model=space.model,
                group_idx=space.group_idx,
                lora=lineage.lora,
                prefix=root,
                shard=shard,
                depth_blocks=max(int(here["depth"]), int(again["depth"])),
                owners=int(here["owners"]),
                shared_tokens=int(here["shared"]) * one_in,
                duplicated_tokens=int(here["duplicated"]) * one_in,
                refilled_tokens=int(again["tokens"]) * one_in,
                refilled_tokens_missing=forgotten,
                sampled_one_in=one_in,
                trust=TRUST_ORDER[trusts.get(space.number, 0)],
                version=version,
            )
        )
    return rows


def _name(row: Any) -> tuple[int, int]:
    return int(row["root"]), int(row["lineage"])


def _largest(rows: Any, figures: Any, listed: int, lineages: Lineages) -> I64:
    """Return the indices of the rows with the largest figures above zero of each space, ties by name."""
    at = np.flatnonzero(figures > 0)
    numbers, which = np.unique(rows["lineage"][at], return_inverse=True)
    named = [lineages.by_number[number] for number in numbers.tolist()]
    spaces = np.array([lineage.space.number for lineage in named], np.int64)[which]
    # Sorting texts is slow: it is done with the texts of lineages, not with those of rows.
    _, loras = np.unique(np.array([lineage.lora for lineage in named], np.str_), return_inverse=True)
    order = np.lexsort((loras[which], rows["root"][at], -figures[at], spaces))
    _, begin = np.unique(spaces[order], return_index=True)
    rank = np.arange(len(order)) - np.repeat(begin, np.diff(begin, append=len(order)))
    return at[order[rank < listed]]
