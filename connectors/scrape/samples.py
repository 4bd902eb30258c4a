"""Combines several samples of one metric and rank into a figure, as its meaning demands. No IO.

An engine has several where processes, ranks that work in step, or kinds of requests each have their own: the
last one alone would be wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from connectors.scrape.figures import FigureRefused

_OF_AN_ENGINE = "model_name"
"""Label whose values differ only where a page has several engines."""


class Sample(NamedTuple):
    """A line of a page."""

    name: str
    """Without `_total`."""
    labels: Mapping[str, str]
    value: float


def of_one_engine(samples: Sequence[Sample]) -> Sequence[Sample]:
    """Return the samples, one for each set of labels.

    Raises FigureRefused if they are of several engines, or one is there twice with different values.
    """
    if len(samples) < 2:
        return samples
    if len({sample.labels.get(_OF_AN_ENGINE, "") for sample in samples}) > 1:
        raise FigureRefused("ambiguous")
    by_labels: dict[frozenset[tuple[str, str]], Sample] = {}
    for sample in samples:
        if by_labels.setdefault(frozenset(sample.labels.items()), sample).value != sample.value:
            raise FigureRefused("ambiguous")
    return list(by_labels.values())


def summed(samples: Sequence[Sample]) -> float:
    """Return a counter: the sum of its parts. Raises FigureRefused."""
    return sum(sample.value for sample in of_one_engine(samples))


def largest(samples: Sequence[Sample]) -> float:
    """Return a share in use: that of the fullest part. Raises FigureRefused."""
    return max(sample.value for sample in of_one_engine(samples))


def smallest(samples: Sequence[Sample]) -> float:
    """Return a capacity: that of the part which is full first. Raises FigureRefused."""
    return min(sample.value for sample in of_one_engine(samples))


def alike(samples: Sequence[Sample]) -> float:
    """Return what all samples say. Raises FigureRefused where they differ."""
    values = {sample.value for sample in of_one_engine(samples)}
    if len(values) > 1:
        raise FigureRefused("ambiguous")
    return values.pop()


def label_alike(label: str, samples: Sequence[Sample]) -> str:
    """Return a label's value as all samples that have it say, empty without any. Raises FigureRefused."""
    values = {sample.labels[label] for sample in of_one_engine(samples) if label in sample.labels}
    if len(values) > 1:
        raise FigureRefused("ambiguous")
    return values.pop() if values else ""


Together = Callable[[Sequence[Sample]], float | str]
TOGETHER: Mapping[str, Together] = {
    "prefix_cache_queries": summed,
    "prefix_cache_hits": summed,
    "external_queries": summed,
    "external_hits": summed,
    "prefill_seconds": summed,
    "prefill_tokens": summed,
    "computed_tokens": summed,
    "kv_cache_usage": largest,
    "block_size": alike,
    "capacity_blocks": smallest,
    "cpu_capacity_tokens": smallest,
}
"""By field of `EngineCounters`."""
