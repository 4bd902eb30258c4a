"""Reads the engines' own counters from their Prometheus page. No IO.

The engines' descriptions name these metrics. A page belongs to one engine but does not say which. Whatever a
page holds, reading it takes a bounded time: a misbehaving engine must not hold up the others.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from connectors.engines.catalogue import CATALOGUE, Catalogue
from connectors.engines.description import Metrics, Sum
from connectors.process.errors import DataError
from connectors.scrape.figures import BOUNDS, RANKS, FigureRefused
from connectors.scrape.samples import (
    TOGETHER,
    Sample,
    Together,
    label_alike,
    of_one_engine,
    smallest,
)
from schemas.events import EngineCounters
from schemas.reasons import FigureRefusal, ScrapeFailure

MAX_LINES = 200_000
"""On a page. An engine of eight ranks has a few thousand."""
MAX_SAMPLES = 4_096
"""Of the metrics that are read; a rank has two dozen."""
MAX_LINE_CHARACTERS = 16 << 10
"""Of one sample. The parser's time is quadratic in the labels of a line."""
MAX_SAMPLES_CHARACTERS = 512 << 10
"""Of all samples together; a rank has three thousand."""
_BEGINNING = re.compile(r"\s*(#|[a-zA-Z_:][\w:]{0,500}[ \t]*(\{|[ \t][-+\dNI])|\Z)", re.A)
"""The first line of a page that is not empty. Answers of other servers, such as a login page, lack it."""
_ABSENT = frozenset({"", "None"})
"""Values of a label whose number the engine does not know yet."""


class PageUnreadable(DataError):
    """Nothing of a page is used."""

    reason: ScrapeFailure
    message: str
    line = "{message}"


@dataclass(frozen=True, slots=True)
class Page:
    """What one page says."""

    ranks: dict[int, EngineCounters]
    """Counters of each data-parallel rank that the page knows; absent and refused figures are None."""
    refused: Counter[FigureRefusal] = field(default_factory=Counter)
    """How many figures cannot be used, by reason."""


def parse_engine_metrics(text: str, catalogue: Catalogue = CATALOGUE) -> Page:
    """Return what a page says. Raises PageUnreadable."""
    if text.count("\n") > MAX_LINES:
        raise PageUnreadable("too_large", f"more than {MAX_LINES} lines")
    if not _BEGINNING.match(text):
        raise PageUnreadable("not_prometheus", "it begins with neither a comment nor a sample")
    # Without the histograms that make up most of a page: parsing costs 10 µs a line.
    lines = [match[0] for match in _known_lines(catalogue).finditer(text)]
    if len(lines) > MAX_SAMPLES:
        raise PageUnreadable("too_large", f"more than {MAX_SAMPLES} samples of the metrics that are read")
    if max(map(len, lines), default=0) > MAX_LINE_CHARACTERS:
        raise PageUnreadable("too_large", f"a line of more than {MAX_LINE_CHARACTERS} characters")
    if sum(map(len, lines)) > MAX_SAMPLES_CHARACTERS:
        raise PageUnreadable("too_large", f"more than {MAX_SAMPLES_CHARACTERS} characters of samples")
    try:
        families = list(text_string_to_metric_families("\n".join(lines) + "\n"))
    except ValueError as error:
        raise PageUnreadable("not_prometheus", "a line that is not in Prometheus' text format") from error
    samples = [
        Sample(sample.name.removesuffix("_total"), sample.labels, sample.value)
        for family in families
        for sample in family.samples
    ]
    page = Page({})
    for engine in catalogue.engines:
        if engine.metrics is not None:
            for rank, counters in _of_engine(engine.metrics, samples, page.refused).items():
                page.ranks.setdefault(rank, counters)
    return Page(dict(sorted(page.ranks.items())), page.refused)


_Samples = Mapping[str, Sequence[Sample]]
"""Of one rank, by metric."""
_TOKENS, _CPU_BLOCKS = "tokens", "cpu_blocks"
"""Values that become figures only together with the block size."""


def _of_engine(
    metrics: Metrics, samples: Sequence[Sample], refused: Counter[FigureRefusal]
) -> dict[int, EngineCounters]:
    """Return an engine's counters by rank; ranks without any are left out.

    If some samples of a metric have a rank, those without one are of all ranks together and do not count.
    """
    ours = _names(metrics)
    known = [one for one in samples if one.name in ours and _counts(metrics, one.name, one.labels)]
    ranked = {one.name for one in known if metrics.rank_label in one.labels}
    by_rank: dict[int, dict[str, list[Sample]]] = {}
    for one in known:
        if one.name in ranked and metrics.rank_label not in one.labels:
            continue
        try:
            rank = RANKS.of_label(one.labels.get(metrics.rank_label, "0"))
        except FigureRefused:
            refused["bad_rank"] += 1
            continue
        by_rank.setdefault(rank, {}).setdefault(one.name, []).append(one)
    counters = {rank: _counters(metrics, by_name, refused) for rank, by_name in by_rank.items()}
    return {rank: one for rank, one in counters.items() if one != EngineCounters()}


def _counters(metrics: Metrics, samples: _Samples, refused: Counter[FigureRefusal]) -> EngineCounters:
    found: dict[str, float | str] = {}
    for name, together, several in _readings(metrics, samples):
        try:
            figure = together(several)
        except FigureRefused as error:
            refused[error.reason] += 1
            continue
        if figure not in _ABSENT:
            found[name] = figure
    tokens, of_cpu = found.pop(_TOKENS, None), found.pop(_CPU_BLOCKS, None)
    fields = _bounded(found, refused)
    size = fields.get("block_size", 0)
    if isinstance(tokens, float) and size:
        fields |= _bounded({"capacity_blocks": tokens // size}, refused)
    if isinstance(of_cpu, str) and size and (blocks := _bounded({"capacity_blocks": of_cpu}, refused)):
        usable = max(0, blocks["capacity_blocks"] - metrics.unused_cpu_blocks)
        fields |= _bounded({"cpu_capacity_tokens": float(usable * size)}, refused)
    if "capacity_blocks" in fields:
        fields["unused_blocks"] = metrics.unused_blocks
    return EngineCounters(**fields)


def _bounded(found: Mapping[str, float | str], refused: Counter[FigureRefusal]) -> dict[str, Any]:
    """Return figures as `EngineCounters` has them; those that cannot be used are left out, and counted."""
    fields: dict[str, Any] = {}
    for name, figure in found.items():
        bound = BOUNDS[name]
        try:
            fields[name] = bound.of_label(figure) if isinstance(figure, str) else bound.of_value(figure)
        except FigureRefused as error:
            refused[error.reason] += 1
    return fields


def _readings(metrics: Metrics, samples: _Samples) -> Iterator[tuple[str, Together, Sequence[Sample]]]:
    """Yield (figure, how to compute it, from which samples) of a rank, as far as the page has any."""
    for name, parts in metrics.sums.items():
        if parts.metric in samples:
            yield name, partial(_part, parts), samples[parts.metric]
    for name, (metric, label) in metrics.labels.items():
        if metric in samples:
            yield name, partial(label_alike, label), samples[metric]
    for name, names in metrics.samples.items():
        # Only under its newest name: for a while engines export both.
        for known in [known for known in names if known in samples][:1]:
            yield name, TOGETHER[name], samples[known]
    if metrics.capacity_tokens in samples:
        yield _TOKENS, smallest, samples[metrics.capacity_tokens]
    metric, label = metrics.cpu_capacity_blocks
    if metric in samples:
        yield _CPU_BLOCKS, partial(label_alike, label), samples[metric]


def _part(parts: Sum, samples: Sequence[Sample]) -> float:
    """Return the sum of those of one engine's samples that count."""
    return sum(sample.value for sample in of_one_engine(samples) if parts.counts(sample.labels))


def _counts(metrics: Metrics, name: str, labels: Mapping[str, str]) -> bool:
    return all(labels.get(label, "") in values for label, values in metrics.only.get(name, {}).items())


def _names(metrics: Metrics) -> set[str]:
    """Return the names, without `_total`, of all metrics that an engine's description mentions."""
    samples = {name for names in metrics.samples.values() for name in names}
    labels = {name for name, _ in (*metrics.labels.values(), metrics.cpu_capacity_blocks)}
    others = labels | {parts.metric for parts in metrics.sums.values()}
    return (samples | others | {metrics.capacity_tokens}) - {""}


@lru_cache(maxsize=8)
def _known_lines(catalogue: Catalogue) -> re.Pattern[str]:
    """Return a pattern that finds the lines of all described metrics on a page."""
    every = [engine.metrics for engine in catalogue.engines if engine.metrics is not None]
    names = sorted({name for metrics in every for name in _names(metrics)})
    alternatives = "|".join(map(re.escape, names))
    return re.compile(rf"^(?:{alternatives})(?:_total)?[{{ ].*$" if names else r"(?!)", re.MULTILINE)
