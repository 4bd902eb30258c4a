"""Checks of what the connector found odd about streams in their present sessions. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from pipeline.doctor.facts import Facts, SourceId
from pipeline.doctor.finding import Finding, Severity
from pipeline.doctor.naming import of_sources
from schemas.reasons import Remark


class _Trouble(NamedTuple):
    """What a remark means."""

    code: str
    severity: Severity
    message: str
    remedy: str
    over: str = ""
    """Message of a note about sources that are no longer degraded; empty: it lasts as long as the session."""


_TROUBLES: dict[Remark, _Trouble] = {
    "unknown_type": _Trouble(
        "unknown-type",
        "problem",
        "engines publish events of types that this kvlens does not know",
        "update kvlens; until then trust only what is complete: a clear of the medium makes it so again",
        "engines published events of types that this kvlens does not know; what those may have changed is "
        "cleared",
    ),
    "other_rank": _Trouble(
        "other-rank",
        "note",
        "batches say another data-parallel rank than the settings",
        "nothing if the engine's ranks are replicas of their own here, or an older SGLang says 0 for all; "
        "otherwise set endpoint or dp_ranks right",
    ),
    "mixed_ranks": _Trouble(
        "mixed-ranks",
        "problem",
        "batches of one stream say different data-parallel ranks",
        "let each rank publish on a port of its own, and check what stands between engine and connector",
    ),
    "no_identity": _Trouble(
        "no-identity",
        "problem",
        "stores do not say which blocks they are of, so nothing can be counted",
        "set the publisher to send object keys or hashes (docs/engines.md)",
    ),
    "no_sequence": _Trouble(
        "no-sequence",
        "note",
        "messages have no sequence number, so losses cannot be seen and trust is never complete",
        "nothing can be done at this end (docs/engines.md)",
    ),
    "contradiction": _Trouble(
        "contradiction",
        "problem",
        "blocks left that cannot have been there, as every batch before is known: what was counted is wrong",
        "see docs/exactness.md#trust. If kvlens_worker_repeats_given_up_total grew, more blocks were "
        "announced again than worker.max_itemised_blocks, and second copies of prompts (prompt_logprobs, "
        "pooling) look like this: raise it, or set worker.reannounced to off if no request asks for "
        "kv_cache_report_mode=full",
        "blocks left that cannot have been there; what was counted wrong is cleared, or was on a medium that "
        "is no more",
    ),
    "no_salt_key": _Trouble(
        "no-salt-key",
        "problem",
        "objects under cache salts are left out, as there is no key to name them by",
        "set lmcache.salt_key_file, then restart the servers of LMCache",
    ),
    "made_up_id": _Trouble(
        "made-up-id",
        "note",
        "these servers of LMCache made up their ids, so each restart makes another replica, and the one "
        "before ends only when it was silent for ten minutes",
        "start them with --instance-id (docs/engines.md)",
    ),
    "loads_stay": _Trouble(
        "loads-stay",
        "note",
        "what these servers of LMCache loaded from storage stays in their memory, where it is left out",
        "set lmcache.l2_prefetch_policy to retain if they run with that; otherwise requests were given up "
        "before they had what was loaded for them",
    ),
}


def remark_findings(facts: Facts) -> Iterator[Finding]:
    """Yield one finding for each kind of remark that a living source has."""
    sessions = facts.store.sessions
    for reason, trouble in _TROUBLES.items():
        found: dict[SourceId, str] = {}
        over: dict[SourceId, str] = {}
        for source in facts.sources():
            if source in sessions and sessions[source].closed_at is None:
                ended = trouble.over and sessions[source].trust != "degraded"
                remarks = [remark.partition(":") for remark in sessions[source].remarks]
                abouts = [about for name, _, about in remarks if name == reason]
                if abouts:
                    (over if ended else found)[source] = " ".join(filter(None, abouts))
        yield from of_sources(trouble.code, trouble.severity, trouble.message, trouble.remedy, found)
        yield from of_sources(trouble.code, "note", trouble.over, trouble.remedy, over)
