"""Queries the figures of the last minutes, and provides them as gauges."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable

import prometheus_client

from connectors.process.registry import Registry
from pipeline.clickhouse.grains import TEN_SECONDS
from pipeline.dashboards.fleet_metrics.families import (
    ADVICE,
    BLOCKS,
    COLUMN_OF_CAUSE,
    COSTS,
    FAMILIES,
    FILLS,
    HITS,
    NEWEST,
    REPLICAS,
    STREAMS,
    TOKENS,
    Family,
)
from pipeline.dashboards.fleet_metrics.folding import Sums, kept_models, kept_replicas, summed
from pipeline.dashboards.page.answers import Answers
from pipeline.dashboards.page.question import Question
from pipeline.errors import StoreUnavailable
from schemas.fleet_metrics import MEDIA, Fleet
from schemas.metric_kinds import Gauge

RANGE_SECONDS = 300
"""Whole minutes, so that it is the same from rows of ten seconds and of minutes."""
SETTLED_SECONDS = 30
"""The newest window is at least this much later than the end of the range: minutes are computed by then."""
LOOKED_BACK_SECONDS = 3600
"""A model whose newest rows are older than this is not shown."""
FRESH_SECONDS = 10.0
"""A page serves everybody who asks within this time."""
ADVICE_SECONDS = 60.0
"""Advice is the most expensive answer, and its range moves once a minute: an answer is kept this long. So is
a failure: most are of a store that has too much to do, which must not be asked again every few seconds."""
MOST_MODELS = 50
MOST_REPLICAS = 200
"""What is beyond is added up as `others`."""
HIT_KINDS = ("actual", "own_ideal", "ideal")


class FleetMetrics:
    """The fleet's figures as gauges. Raises StoreUnavailable when the store answers nothing."""

    def __init__(self, answers: Answers, clock: Callable[[], float] = time.time) -> None:
        self._answers = answers
        self._clock = clock
        self._turn = asyncio.Lock()
        self._made_at = float("-inf")
        self._figures = Registry()
        self._advice: tuple[Question, float, list[tuple[object, ...]] | None] | None = None

    async def figures(self) -> Registry:
        """Return the gauges of `schemas.metrics.Fleet`, renewed at most once in FRESH_SECONDS."""
        async with self._turn:
            if not self._within(FRESH_SECONDS, self._made_at):
                self._figures = await self._collected()
                self._made_at = self._clock()
            return self._figures

    async def _collected(self) -> Registry:
        now = int(self._clock())
        newest = await self._asked(NEWEST, Question(now - LOOKED_BACK_SECONDS, now))
        tables: dict[Family, list[tuple[object, ...]] | None] = {}
        end = 0
        if newest:
            end = (max(int(str(at)) for _, at in newest) - SETTLED_SECONDS) // 60 * 60
            # `end` itself is excluded: windows are selected by their start, findings by the second.
            question = Question(end - RANGE_SECONDS, end - TEN_SECONDS.length)
            seconds = question._replace(end=end - 1)
            answers = await asyncio.gather(
                *(self._tried(family, seconds if family is ADVICE else question) for family in FAMILIES)
            )
            tables = dict(zip(FAMILIES, answers, strict=True))
        return _gauges_of(newest, tables, end)

    def _within(self, seconds: float, made_at: float) -> bool:
        """Return whether it is less than this long ago; not so after the clock was set back."""
        return 0 <= self._clock() - made_at < seconds

    async def _asked(self, family: Family, question: Question) -> list[tuple[object, ...]]:
        answer = await self._answers.of(f"fleet-metrics-{family.name}", family.sql, question)
        return list(zip(*answer.columns, strict=True))

    async def _tried(self, family: Family, question: Question) -> list[tuple[object, ...]] | None:
        if family is ADVICE and self._advice is not None:
            of, made_at, kept = self._advice
            if of == question and self._within(ADVICE_SECONDS, made_at):
                return kept
        try:
            rows = await self._asked(family, question)
        except StoreUnavailable:
            rows = None
        if family is ADVICE:
            self._advice = (question, self._clock(), rows)
        return rows


def _gauges_of(
    newest: list[tuple[object, ...]], tables: dict[Family, list[tuple[object, ...]] | None], end: int
) -> Registry:
    registry = _Gauges()
    streams = tables.get(STREAMS) or []
    # If the streams are not known, rank the models that have rows.
    counted = [(str(model), int(str(count))) for model, _, count in streams]
    kept = kept_models(counted or [(str(model), 1) for model, _ in newest], MOST_MODELS)
    named = {str(row[0]) for rows in (newest, streams) for row in rows}
    registry.set(Fleet.folded, len(named - set(kept)), "model")
    for model, at in newest:
        if str(model) in kept:
            registry.set(Fleet.newest, float(str(at)), str(model))
    if tables:
        registry.set(Fleet.range_end, end)
        registry.set(Fleet.range_length, RANGE_SECONDS)
    for family, rows in tables.items():
        registry.set(Fleet.answered, 0 if rows is None else 1, family.name)
        if rows is not None:
            _SETTERS[family](registry, summed(rows, family.labels, kept))
    return registry.registry


class _Gauges:
    """The gauges of one range, each made when it is first set."""

    def __init__(self) -> None:
        self.registry = Registry()
        self._made: dict[Gauge, prometheus_client.Gauge] = {}

    def set(self, gauge: Gauge, value: float, *labels: str) -> None:
        if gauge not in self._made:
            self._made[gauge] = self.registry.gauge(gauge)
        made = self._made[gauge]
        (made.labels(*labels) if labels else made).set(value)


def _streams(gauges: _Gauges, sums: Sums) -> None:
    for (model, trust), (count,) in sums.items():
        gauges.set(Fleet.streams, count or 0.0, model, trust)


def _fills(gauges: _Gauges, sums: Sums) -> None:
    for (model,), tokens in sums.items():
        for cause, count in zip(COLUMN_OF_CAUSE, tokens, strict=True):
            gauges.set(Fleet.filled, (count or 0.0) / RANGE_SECONDS, model, cause)


def _hits(gauges: _Gauges, sums: Sums) -> None:
    for (model,), (*found, queried) in sums.items():
        for kind, tokens in zip(HIT_KINDS, found, strict=True):
            if queried and tokens is not None:
                gauges.set(Fleet.hit_ratio, tokens / queried, model, kind)


def _replicas(gauges: _Gauges, sums: Sums) -> None:
    gauges.set(Fleet.folded, max(0, len(sums) - MOST_REPLICAS), "replica")
    for labels, (tokens,) in kept_replicas(sums, MOST_REPLICAS).items():
        gauges.set(Fleet.replica_avoidable, (tokens or 0.0) / RANGE_SECONDS, *labels)


def _tokens(gauges: _Gauges, sums: Sums) -> None:
    held: defaultdict[tuple[str, str], float] = defaultdict(float)
    for (model, medium), (tokens,) in sums.items():
        # What no engine reports gets no gauge, rather than 0.
        if tokens is not None:
            held[model, medium if medium in MEDIA else "other"] += tokens
    for labels, tokens in held.items():
        gauges.set(Fleet.cached, tokens, *labels)


def _blocks(gauges: _Gauges, sums: Sums) -> None:
    for (model,), (entries, capacity) in sums.items():
        gauges.set(Fleet.gpu_blocks, entries or 0.0, model)
        gauges.set(Fleet.gpu_capacity, capacity or 0.0, model)


def _costs(gauges: _Gauges, sums: Sums) -> None:
    without: defaultdict[tuple[str, str], float] = defaultdict(float)
    gpus: defaultdict[tuple[str, str, str, str], float] = defaultdict(float)
    for (model, kind, cause, currency, basis), (gpu_seconds, cost, unrated) in sums.items():
        without[model, kind] += unrated or 0.0
        if gpu_seconds is not None:
            gpus[model, kind, cause, basis] += gpu_seconds
        if cost is not None:
            hourly = cost / RANGE_SECONDS * 3600
            gauges.set(Fleet.cost, hourly, model, kind, cause, basis, currency)
    for each, seconds in gpus.items():
        gauges.set(Fleet.gpus, seconds / RANGE_SECONDS, *each)
    for (model, kind), tokens in without.items():
        gauges.set(Fleet.without_rate, tokens / RANGE_SECONDS, model, kind)


def _advice(gauges: _Gauges, sums: Sums) -> None:
    hourly: defaultdict[tuple[str, str], float] = defaultdict(float)
    for (model, kind, basis), (tokens, gpu_seconds) in sums.items():
        hourly[model, kind] += tokens or 0.0
        if gpu_seconds is not None:
            gauges.set(Fleet.advice_gpus, gpu_seconds, model, kind, basis)
    for labels, tokens in hourly.items():
        gauges.set(Fleet.advice, tokens, *labels)


_SETTERS: dict[Family, Callable[[_Gauges, Sums], None]] = {
    STREAMS: _streams,
    FILLS: _fills,
    HITS: _hits,
    REPLICAS: _replicas,
    TOKENS: _tokens,
    BLOCKS: _blocks,
    COSTS: _costs,
    ADVICE: _advice,
}
