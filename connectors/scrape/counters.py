"""Read the engines' own counters out of their Prometheus page. No IO.

The engines' descriptions name these metrics. A page belongs to one engine but does not say which.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec
from prometheus_client.parser import text_string_to_metric_families

from connectors.engines.catalogue import CATALOGUE, Catalogue
from connectors.engines.description import Metrics
from schemas.events import EngineCounters

_WHOLE = frozenset(field.name for field in msgspec.structs.fields(EngineCounters) if field.type == int | None)
"""Fields that are whole numbers."""


class PageUnreadable(ValueError):
    """The page is not in Prometheus' text format."""


def parse_engine_metrics(text: str, catalogue: Catalogue = CATALOGUE) -> dict[int, EngineCounters]:
    """Return the counters of each data-parallel rank that the page knows; absent figures are None.

    Raises PageUnreadable.
    """
    known = _names(catalogue)
    try:
        families = list(text_string_to_metric_families("\n".join(_known_lines(text, known)) + "\n"))
    except ValueError as error:
        raise PageUnreadable(str(error)) from error
    samples = [
        (sample.name.removesuffix("_total"), sample.labels, sample.value)
        for family in families
        for sample in family.samples
    ]
    ranks: dict[int, EngineCounters] = {}
    for engine in catalogue.engines:
        if engine.metrics is not None:
            ranks = {**_of_engine(engine.metrics, samples), **ranks}
    return dict(sorted(ranks.items()))


_Sample = tuple[str, Mapping[str, str], float]
"""Name without `_total`, labels, value."""


def _of_engine(metrics: Metrics, samples: Sequence[_Sample]) -> dict[int, EngineCounters]:
    """Return an engine's counters by rank; ranks without any are left out."""
    values: dict[int, dict[str, float]] = {}
    labels: dict[int, dict[tuple[str, str], str]] = {}
    for name, of_sample, value in samples:
        rank = _rank(of_sample.get(metrics.rank_label))
        if rank is None:
            continue
        labels.setdefault(rank, {}).update({(name, label): text for label, text in of_sample.items()})
        if math.isfinite(value) and value >= 0:
            values.setdefault(rank, {})[name] = value
    counters = {rank: _counters(metrics, values.get(rank, {}), labels[rank]) for rank in labels}
    return {rank: one for rank, one in counters.items() if one != EngineCounters()}


def _counters(
    metrics: Metrics, values: Mapping[str, float], labels: Mapping[tuple[str, str], str]
) -> EngineCounters:
    fields: dict[str, Any] = {}
    for field, names in metrics.samples.items():
        # Under its newest name: in between, engines export both.
        value = next((values[name] for name in names if name in values), None)
        fields[field] = int(value) if value is not None and field in _WHOLE else value
    for field, where in metrics.labels.items():
        fields[field] = _whole(labels.get(where))
    return EngineCounters(**fields)


@lru_cache(maxsize=8)
def _names(catalogue: Catalogue) -> frozenset[str]:
    """Return the names of all metrics that any engine's description mentions."""
    every = [engine.metrics for engine in catalogue.engines if engine.metrics is not None]
    samples = {name for metrics in every for names in metrics.samples.values() for name in names}
    return frozenset(samples | {name for metrics in every for name, _ in metrics.labels.values()})


def _known_lines(text: str, known: frozenset[str]) -> Iterator[str]:
    """Leave out the histograms that make up most of a page: parsing costs 10 µs a line."""
    beginnings = tuple(known)
    for line in text.split("\n"):
        if line.startswith(beginnings):
            end = len(line)
            for separator in "{ ":
                at = line.find(separator)
                if at >= 0:
                    end = min(end, at)
            if line[:end].removesuffix("_total") in known:
                yield line


def _rank(label: str | None) -> int | None:
    return 0 if label is None else _whole(label)


def _whole(label: str | None) -> int | None:
    return int(label) if label is not None and label.isascii() and label.isdigit() else None
