"""Limits the number of labels: what is beyond the limit is added up as `others`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

OTHERS = "others"
Labels = tuple[str, ...]
Sums = dict[Labels, list[float | None]]
"""Figures by labels; None: not known."""


def summed(rows: Iterable[Sequence[object]], labels: int, kept: Mapping[str, str]) -> Sums:
    """Add up rows by their first `labels` columns; `kept`: the label of each model, `others` without one."""
    found: Sums = {}
    for row in rows:
        model, *rest = map(str, row[:labels])
        key = (kept.get(model, OTHERS), *rest)
        figures = [None if value is None else float(str(value)) for value in row[labels:]]
        before = found.setdefault(key, [None] * len(figures))
        found[key] = [
            old if new is None else new + (old or 0.0) for old, new in zip(before, figures, strict=True)
        ]
    return found


def kept_models(streams: Iterable[tuple[str, int]], most: int) -> dict[str, str]:
    """Return {model: model} of those with most streams: which these are does not depend on traffic."""
    of_model: defaultdict[str, int] = defaultdict(int)
    for model, count in streams:
        of_model[model] += count
    ranked = sorted(of_model, key=lambda model: (-of_model[model], model))
    return {model: model for model in ranked[:most]}


def kept_replicas(avoidable: Sums, most: int) -> Sums:
    """Return the replicas with the largest first figure, and for each model the others together.

    Labels are model, replica and role; `others` have no role.
    """
    ranked = sorted(avoidable, key=lambda labels: (-(avoidable[labels][0] or 0.0), labels))
    rows = [
        (*(labels if place < most else (labels[0], OTHERS, "")), *avoidable[labels])
        for place, labels in enumerate(ranked)
    ]
    return summed(rows, 3, {labels[0]: labels[0] for labels in ranked})
