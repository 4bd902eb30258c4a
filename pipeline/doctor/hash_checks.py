"""Whether block hashes of replicas that are counted together can be equal at all, and are. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from pipeline.doctor.facts import Facts, SessionFacts
from pipeline.doctor.finding import Finding
from pipeline.doctor.naming import source_name
from schemas.hashing.content import SCHEME
from schemas.settings import hash_domain

_SAME_HASHES = "give all the same hash algorithm and PYTHONHASHSEED, or these their own `hash_scheme`"
_SAME_CONTENT = "give all engines the same block size and all connectors the same `content_key_file`"


def hash_findings(facts: Facts) -> Iterator[Finding]:
    """Yield hash domains whose living sources cannot, or may not, hash alike."""
    domains: dict[str, list[tuple[str, SessionFacts]]] = {}
    for source, session in sorted(facts.store.sessions.items()):
        # Blocks of equal content have one content hash, whatever the engine.
        if session.closed_at is None and not _is_of_content(session):
            domains.setdefault(session.hash_domain, []).append((source_name(source), session))
    for domain, members in domains.items():
        engines = sorted({session.engine for _, session in members if session.engine})
        eras = sorted({session.wire_era for _, session in members if session.wire_era})
        subjects = tuple(name for name, _ in members)
        if len(engines) > 1:
            yield Finding(
                "hashes-differ",
                "problem",
                f"hash domain {domain} holds engines of different kinds ({', '.join(engines)}): their hashes "
                "never agree, so kvlens cannot see what they share",
                "give the replicas of each kind their own `hash_scheme`",
                subjects,
            )
        elif len(eras) > 1:
            yield Finding(
                "hashes-may-differ",
                "note",
                f"hash domain {domain} holds engines that encode differently ({', '.join(eras)}): they "
                "hash alike only with the same algorithm and PYTHONHASHSEED (vLLM before 0.29: set it)",
                "",
                subjects,
            )
    yield from _found(facts)


def _found(facts: Facts) -> Iterator[Finding]:
    """Yield what the hashes themselves show, domain by domain."""
    alone: dict[tuple[str, str], list[str]] = {}
    alike: dict[str, list[tuple[frozenset[str], list[str]]]] = {}
    for source, hashes in sorted(facts.store.hashes.items()):
        session = facts.store.sessions.get(source)
        if session is None or session.closed_at is not None:
            continue
        if hashes.alone:
            remedy = _SAME_CONTENT if _is_of_content(session) else _SAME_HASHES
            alone.setdefault((session.hash_domain, remedy), []).append(source_name(source))
            continue
        # Groups differ from shard to shard: one in common is enough, and joins those known before.
        groups, members = hashes.groups, [source_name(source)]
        others: list[tuple[frozenset[str], list[str]]] = []
        for known, names in alike.get(session.hash_domain, []):
            if known & groups:
                groups, members = known | groups, names + members
            else:
                others.append((known, names))
        alike[session.hash_domain] = [*others, (groups, members)]
    for (domain, remedy), names in alone.items():
        yield Finding(
            "hashes-not-comparable",
            "problem",
            f"hash domain {domain}: these share no first block with any other replica, though the traffic of "
            "both keeps coming back to first blocks; their fills count as unknown, not as cold",
            f"{remedy}; if you route by session and prompts have nothing in common, this is normal: "
            "`fleet.compare_after = 0`",
            tuple(names),
        )
    for domain, groups_of in alike.items():
        pairs = sorted(" ".join(sorted(names)) for _, names in groups_of if len(names) > 1)
        if len(pairs) > 1:
            yield Finding(
                "hash-groups",
                "note",
                f"hash domain {domain} falls into groups that share nothing with each other: "
                + "; ".join(pairs),
                "",
                tuple(" ".join(pairs).split()),
            )


def _is_of_content(session: SessionFacts) -> bool:
    """Return whether blocks are named by what they hold, and not by the engine's own hashes."""
    return session.hash_domain.startswith(hash_domain(session.model, SCHEME, ""))
