"""Read the engines' own counters out of their Prometheus page. No IO.

Names are vLLM's (0.9 to 0.33): `vllm:prefix_cache_queries` and `_hits` count tokens, before 0.10 as
`vllm:gpu_prefix_cache_*`; the label `engine` is the data-parallel rank.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from prometheus_client.parser import text_string_to_metric_families

from schemas.events import EngineCounters

_COUNTS = {
    "prefix_cache_queries": ("vllm:prefix_cache_queries", "vllm:gpu_prefix_cache_queries"),
    "prefix_cache_hits": ("vllm:prefix_cache_hits", "vllm:gpu_prefix_cache_hits"),
    "external_queries": ("vllm:external_prefix_cache_queries",),
    "external_hits": ("vllm:external_prefix_cache_hits",),
}
_USAGE = ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc")
_CONFIGURATION = "vllm:cache_config_info"
_KNOWN = frozenset(name for names in _COUNTS.values() for name in names) | {*_USAGE, _CONFIGURATION}
_LABEL = "engine"


class PageUnreadable(ValueError):
    """The page is not in Prometheus' text format."""


def parse_engine_metrics(text: str) -> dict[int, EngineCounters]:
    """Return the counters of each data-parallel rank that the page knows; absent figures are None.

    Raises PageUnreadable.
    """
    values: dict[int, dict[str, float]] = {}
    configurations: dict[int, dict[str, str]] = {}
    try:
        families = list(text_string_to_metric_families("\n".join(_known_lines(text)) + "\n"))
    except ValueError as error:
        raise PageUnreadable(str(error)) from error
    for family in families:
        for sample in family.samples:
            rank = _rank(sample.labels.get(_LABEL))
            if rank is None:
                continue
            name = sample.name.removesuffix("_total")
            if name == _CONFIGURATION:
                configurations[rank] = sample.labels
            elif math.isfinite(sample.value) and sample.value >= 0:
                values.setdefault(rank, {})[name] = sample.value
    ranks = {
        rank: _counters(values.get(rank, {}), configurations.get(rank, {}))
        for rank in sorted(values.keys() | configurations.keys())
    }
    return {rank: counters for rank, counters in ranks.items() if counters != EngineCounters()}


def _counters(values: Mapping[str, float], configuration: Mapping[str, str]) -> EngineCounters:
    counts = {field: _first(values, names) for field, names in _COUNTS.items()}
    return EngineCounters(
        **{field: None if value is None else int(value) for field, value in counts.items()},
        capacity_blocks=_whole(configuration.get("num_gpu_blocks")),
        block_size=_whole(configuration.get("block_size")),
        kv_cache_usage=_first(values, _USAGE),
    )


def _first(values: Mapping[str, float], names: Sequence[str]) -> float | None:
    """Return the figure under its newest name: in between, engines exported both."""
    return next((values[name] for name in names if name in values), None)


def _known_lines(text: str) -> Iterator[str]:
    """Leave out the histograms that make up most of a page: parsing costs 10 µs a line."""
    for line in text.split("\n"):
        if line.startswith("vllm:"):
            end = len(line)
            for mark in "{ ":
                at = line.find(mark)
                if at >= 0:
                    end = min(end, at)
            if line[:end].removesuffix("_total") in _KNOWN:
                yield line


def _rank(label: str | None) -> int | None:
    return 0 if label is None else _whole(label)


def _whole(label: str | None) -> int | None:
    return int(label) if label is not None and label.isascii() and label.isdigit() else None
