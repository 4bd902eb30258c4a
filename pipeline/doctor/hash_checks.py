"""Whether block hashes of replicas that are counted together can be equal at all. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from pipeline.doctor.facts import Facts, LifeFacts
from pipeline.doctor.finding import Finding


def hash_findings(facts: Facts) -> Iterator[Finding]:
    """Yield hash domains whose living sources cannot, or may not, hash alike."""
    domains: dict[str, list[tuple[str, LifeFacts]]] = {}
    for (replica, rank), life in sorted(facts.store.lives.items()):
        if life.closed_at is None:
            domains.setdefault(life.hash_domain, []).append((f"{replica}/{rank}", life))
    for domain, members in domains.items():
        engines = sorted({life.engine for _, life in members if life.engine})
        eras = sorted({life.wire_era for _, life in members if life.wire_era})
        subjects = tuple(name for name, _ in members)
        if len(engines) > 1:
            yield Finding(
                "hashes-differ",
                "problem",
                f"hash domain {domain} holds engines of different kinds ({', '.join(engines)}): their hashes "
                "never agree, so what they share is not seen",
                "give the replicas of each kind a `hash_scheme` of its own",
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
