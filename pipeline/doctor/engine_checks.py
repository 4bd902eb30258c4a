"""Whether what an engine says of itself, on its metrics page, agrees with what kvlens says of it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from pipeline.doctor.facts import EngineFacts, Facts, SourceId
from pipeline.doctor.finding import Finding
from pipeline.doctor.naming import of_sources

USAGE_MARGIN = 0.25
"""Share of the capacity by which usage may exceed what is held: the last block of each running request is in
use before it is full, which no event shows, and the page is read at another moment than the window's end."""
COMPUTED_TOKENS = 100_000
"""Fewer computed tokens say little: the last block of a prompt is never stored."""
STORED_SHARE = 0.5


def engine_findings(facts: Facts) -> Iterator[Finding]:
    """Yield what is impossible, or unlikely, if both the engine's page and our tables are right."""
    sources = [source for source in facts.sources() if source in facts.store.engines]
    health = facts.store.health
    # Of the others, the worker itself reports this, as drift.
    without_drift = [source for source in sources if source not in health or not health[source].drift_blocks]

    def where(check: Callable[[EngineFacts], str | None], among: Iterable[SourceId]) -> dict[SourceId, str]:
        checked = ((source, check(facts.store.engines[source])) for source in among)
        return {source: figures for source, figures in checked if figures is not None}

    yield from of_sources(
        "resident-above-capacity",
        "problem",
        "the tables hold more blocks than the engine's metrics page says that it has",
        "does metrics_url point to the same engine as endpoint? Otherwise as for drift: do not trust the "
        "occupancy until a clear or a restart",
        where(_above_capacity, without_drift),
    )
    yield from of_sources(
        "resident-below-usage",
        "problem",
        "running requests alone use more blocks than the tables hold",
        "does metrics_url point to the same engine as endpoint, and is prefix caching on? Otherwise stores "
        "are missing: `kvlens verify` shows whether the log has them; a clear or a restart of the engine "
        "makes the tables complete",
        where(_below_usage, sources),
    )
    yield from of_sources(
        "hits-above-queries",
        "problem",
        "the engine says it found more tokens than it looked up",
        "does metrics_url point to one engine, and not to a load balancer or a sum over several?",
        where(_hits_above_queries, sources),
    )
    yield from of_sources(
        "stored-below-computed",
        "note",
        "the engine computed far more prompt tokens in the last hour than its events stored",
        "normal if prompts are shorter than a block; otherwise stores are missing: `kvlens verify`",
        where(_stored_too_little, sources),
    )


def _above_capacity(engine: EngineFacts) -> str | None:
    if not engine.capacity_blocks or engine.entries is None or engine.entries <= engine.capacity_blocks:
        return None
    return f"{engine.entries} of {engine.capacity_blocks}"


def _below_usage(engine: EngineFacts) -> str | None:
    if not engine.capacity_blocks or engine.usage is None or engine.entries is None:
        return None
    if engine.trust != "complete":
        return None  # it is known that something is missing
    in_use = engine.usage * engine.capacity_blocks
    if in_use <= engine.entries + USAGE_MARGIN * engine.capacity_blocks:
        return None
    return f"{in_use:.0f} in use, {engine.entries} held, of {engine.capacity_blocks}"


def _hits_above_queries(engine: EngineFacts) -> str | None:
    for name, (hits, queries) in engine.counters.items():
        if hits > queries:
            return f"{name} {hits} of {queries}"
    return None


def _stored_too_little(engine: EngineFacts) -> str | None:
    if engine.trust != "complete" or engine.computed_tokens is None:
        return None
    if engine.computed_tokens < COMPUTED_TOKENS:
        return None
    if engine.stored_tokens >= STORED_SHARE * engine.computed_tokens:
        return None
    return f"{engine.computed_tokens} computed, {engine.stored_tokens} stored"
