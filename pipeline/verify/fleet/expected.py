"""The rows that a shard must have, as they follow from its recount."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from pipeline.verify import times
from pipeline.verify.fleet.owners import Redundancy, RedundancyKey
from pipeline.verify.fleet.recount import Fills, FillsOf
from pipeline.verify.fleet.shown import Hot, Prefix
from schemas.fleet_rows import CapacityCurveRow, FillsRow, HotPrefixRow, RedundancyRow
from schemas.setting_rows import HashGroupRow

FleetRow = FillsRow | RedundancyRow | CapacityCurveRow | HotPrefixRow | HashGroupRow

CAUSES = (
    "promoted",
    "transferred",
    "generated",
    "peer",
    "peer_and_evicted",
    "evicted",
    "evicted_elsewhere",
    "cleared",
    "cold",
    "unknown",
)
"""Of fills, as in the columns; `reannounced` is not a cause."""


def fills(of: FillsOf, figures: Fills, shard: int) -> Iterator[FillsRow | CapacityCurveRow]:
    """Yield why a source's blocks were filled, and how much more cache would have kept those it evicted."""
    where: dict[str, Any] = {
        **of._asdict(),
        "window": times.start_of(of.window),
        "shard": shard,
        "sampled_one_in": 1,
        "trust": figures.trust,
        "version": figures.version,
    }
    columns: dict[str, Any] = {f"{cause}_blocks": figures.blocks[cause] for cause in (*CAUSES, "reannounced")}
    columns |= {f"{cause}_tokens": figures.tokens[cause] for cause in (*CAUSES, "reannounced")}
    yield FillsRow(
        filled_blocks=sum(figures.blocks[cause] for cause in CAUSES),
        filled_tokens=sum(figures.tokens[cause] for cause in CAUSES),
        transferred_again_tokens=figures.transferred_again,
        peer_at_receivers_tokens=figures.at_receivers["peer"],
        evicted_at_receivers_tokens=figures.at_receivers["evicted_elsewhere"],
        regret_hist=list(figures.regret_hist),
        **columns,
        **where,
    )
    if figures.needed_hist:
        yield CapacityCurveRow(needed_hist=list(figures.needed_hist), **where)


def redundancy(
    key: RedundancyKey, figures: Redundancy, shard: int, *, window: int, version: int
) -> RedundancyRow:
    """Return how many sources held the same blocks at the end of a window."""
    return RedundancyRow(
        window=times.start_of(window),
        **key._asdict(),
        shard=shard,
        owners_1=figures.between(1, 1),
        owners_2=figures.between(2, 2),
        owners_3=figures.between(3, 3),
        owners_4_7=figures.between(4, 7),
        owners_8_up=figures.between(8, math.inf),
        unique_tokens=figures.unique_tokens,
        physical_tokens=figures.physical_tokens,
        received_tokens=figures.received_tokens,
        sampled_one_in=1,
        trust="complete",
        version=version,
    )


def hot_prefix(prefix: Prefix, figures: Hot, shard: int, *, window: int, version: int) -> HotPrefixRow:
    """Return how much of a prefix several sources hold at a window's end, and how much was refilled in it."""
    return HotPrefixRow(
        window=times.start_of(window),
        hash_domain=prefix.hash_domain,
        model=prefix.model,
        group_idx=prefix.group_idx,
        lora=prefix.lora,
        prefix=prefix.root,
        shard=shard,
        **vars(figures),
        refilled_tokens_missing=0,
        sampled_one_in=1,
        trust="complete",
        version=version,
    )


def listed(rows: list[HotPrefixRow], most: int) -> Iterator[HotPrefixRow]:
    """Yield the top `most` of each hash domain, model and group, by duplicated and by refilled tokens."""
    of_space: dict[tuple[str, str, int], list[HotPrefixRow]] = {}
    for row in rows:
        of_space.setdefault((row.hash_domain, row.model, row.group_idx), []).append(row)
    for of in of_space.values():
        for figure in ("duplicated_tokens", "refilled_tokens"):
            first = sorted(of, key=lambda row: (-getattr(row, figure), row.prefix, row.lora))
            yield from (row for row in first[:most] if getattr(row, figure))
