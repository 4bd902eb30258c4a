"""Checks of each source, by log and tables: connectivity, loss, trust, drift. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator

from pipeline.doctor.facts import Facts, HealthFacts, SourceId
from pipeline.doctor.finding import Finding
from pipeline.doctor.naming import clock, names, of_sources
from schemas.metrics import Connector

SILENT_SECONDS = 45.0
"""The connector writes a record of every source at least every ten seconds; the rest allows for delays."""
LAG_SECONDS = 60.0
FELL_BESIDE_SECONDS = 120.0
"""A restart that the stream shows explains counters that fall within this time of it."""
SUPERSEDED = 3
"""Sessions in an hour that another replaced before they ended."""
LOOKED_AT = 32
"""Batches within which an engine is recognised, if it can be."""
DUPLICATES = 100
"""A restart of a connector also repeats some batches."""


def source_findings(facts: Facts) -> Iterator[Finding]:
    """Yield what is wrong with sources; sources with the same trouble share a finding."""
    sources = facts.sources()
    health, sessions = facts.store.health, facts.store.sessions
    if facts.store.whole and facts.kafka.unavailable is None and not sources:
        yield Finding(
            "no-source",
            "unknown",
            "no source is configured, and neither log nor tables know one",
            "use the settings of connector and worker",
        )
    log = facts.kafka.log
    log_known = facts.kafka.unavailable is None and facts.kafka.log_seconds >= SILENT_SECONDS
    never = [source for source in sources if not {source} & (log.keys() | health.keys() | sessions.keys())]
    if never and log_known and facts.store.whole:
        yield Finding(
            "source-unknown",
            "problem",
            "neither log nor tables know these configured sources",
            "does the connector run, and with these settings?",
            names(never),
        )
    if log_known:
        mute = [
            source
            for source in sources
            if source not in never
            and (source not in log or facts.at - log[source].written_at > SILENT_SECONDS)
            and not facts.removed(source)
        ]
        if mute:
            yield Finding(
                "connector-silent",
                "problem",
                f"no record of these sources has come from the connector for {SILENT_SECONDS:.0f} s",
                "does `kvlens connect` run with them, and does Kafka take its records?",
                names(mute),
            )
    for check in (_disconnected, _degraded, _drifting, _undecodable, _late, _replayed, _unrecognised):
        yield from check(facts, sources)
    yield from _contested(facts, sources)
    yield from _fallen(facts, sources)


def _where(
    facts: Facts,
    sources: list[SourceId],
    wrong: Callable[[HealthFacts], bool],
    said: Callable[[HealthFacts], str],
) -> dict[SourceId, str]:
    """Return what is `said` of the sources whose newest row is `wrong`."""
    health = facts.store.health
    return {source: said(health[source]) for source in sources if source in health and wrong(health[source])}


def _disconnected(facts: Facts, sources: list[SourceId]) -> Iterator[Finding]:
    return of_sources(
        "source-disconnected",
        "problem",
        "not connected",
        "does the engine run? Is its endpoint right (rank r on port + r)? Is the network open? After "
        "connector.silent_seconds its blocks leave the fleet",
        _where(facts, sources, lambda row: not row.connected, _last_batch),
    )


def _degraded(facts: Facts, sources: list[SourceId]) -> Iterator[Finding]:
    sessions, health = facts.store.sessions, facts.store.health
    found: defaultdict[str, dict[SourceId, str]] = defaultdict(dict)
    for source in sources:
        session, row = sessions.get(source), health.get(source)
        if session is not None and session.closed_at is None:
            lost = f", {row.lost_batches} batches lost in the last hour" if row and row.lost_batches else ""
            found[session.trust][source] = f"since {clock(session.trust_since)}{lost}"
    yield from of_sources(
        "trust-degraded",
        "problem",
        "batches or events are missing or contradict each other, figures may be wrong",
        "find out why they were lost; only clearing the engine's cache or restarting it repairs the figures",
        found["degraded"],
    )
    yield from of_sources(
        "trust-partial",
        "note",
        "kvlens started after the engine, or a storage holds what came before it, so older blocks are "
        "unknown",
        "",
        found["partial"],
    )


def _drifting(facts: Facts, sources: list[SourceId]) -> Iterator[Finding]:
    return of_sources(
        "drift",
        "problem",
        "more blocks resident than the engine has",
        "the engine lost removals before it numbered them, or requests ask it to announce blocks again "
        "(kv_cache_report_mode=full: copies with worker.reannounced = off); do not trust their occupancy "
        "until a clear or a restart",
        _where(
            facts,
            sources,
            lambda row: row.drift_blocks > 0,
            lambda row: f"{row.drift_blocks} too many since {clock(row.drift_since)}",
        ),
    )


def _undecodable(facts: Facts, sources: list[SourceId]) -> Iterator[Finding]:
    return of_sources(
        "undecodable",
        "problem",
        "events in the last hour that nobody understood",
        f"the connector's log and {Connector.undecodable.name} say why",
        _where(
            facts, sources, lambda row: row.undecodable_events > 0, lambda row: f"{row.undecodable_events}"
        ),
    )


def _late(facts: Facts, sources: list[SourceId]) -> Iterator[Finding]:
    return of_sources(
        "source-late",
        "note",
        "batches came late in the last hour, or clocks differ",
        "",
        _where(
            facts,
            sources,
            lambda row: row.lag_seconds > LAG_SECONDS,
            lambda row: f"up to {row.lag_seconds:.0f} s",
        ),
    )


def _replayed(facts: Facts, sources: list[SourceId]) -> Iterator[Finding]:
    return of_sources(
        "gaps-filled",
        "note",
        "batches in the last hour that did not come live and that a replay brought",
        "",
        _where(
            facts,
            sources,
            lambda row: row.gap_batches > row.lost_batches,
            lambda row: f"{row.gap_batches - row.lost_batches}",
        ),
    )


def _unrecognised(facts: Facts, sources: list[SourceId]) -> Iterator[Finding]:
    found = {
        source: session.wire_era
        for source, session in facts.store.sessions.items()
        if source in sources
        and session.closed_at is None
        and session.wire_era
        and not session.engine
        and session.last_seq >= LOOKED_AT
    }
    return of_sources(
        "engine-unknown",
        "note",
        "nothing that these publish says which engine it is; each store counts as a copy, each removal as "
        "the end of one",
        "nothing for vLLM before 0.10.2 and SGLang before 0.5.9; of others see what they announce "
        "(docs/engines.md#publishers-that-nobody-knows)",
        found,
    )


def _contested(facts: Facts, sources: list[SourceId]) -> Iterator[Finding]:
    sessions, health = facts.store.sessions, facts.store.health
    found = [
        source
        for source in sources
        if (source in sessions and sessions[source].superseded >= SUPERSEDED)
        or (source in health and health[source].duplicate_batches > max(DUPLICATES, health[source].batches))
    ]
    if found:
        yield Finding(
            "two-connectors",
            "problem",
            "new sessions of these engines begin before the old ones end, or most batches come twice",
            "make sure that only one connector reads each engine",
            names(found),
        )


def _fallen(facts: Facts, sources: list[SourceId]) -> Iterator[Finding]:
    found = []
    for source in sources:
        session = facts.store.sessions.get(source)
        openings = session.openings if session else ()
        for fell in facts.store.counters_fell.get(source, ()):
            if facts.at - fell > FELL_BESIDE_SECONDS and not any(
                abs(opened - fell) <= FELL_BESIDE_SECONDS for opened in openings
            ):
                found.append(source)
                break
    if found:
        yield Finding(
            "counters-fell",
            "problem",
            "the engine's own counters fell, so it restarted, but its event stream shows no restart",
            "does metrics_url point to the same process as endpoint, and not to a load balancer?",
            names(found),
        )


def _last_batch(row: HealthFacts) -> str:
    return "never heard" if row.last_batch_at is None else f"last batch {clock(row.last_batch_at)}"
