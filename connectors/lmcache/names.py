"""What the sources of LMCache's servers and storage are called. No IO."""

from __future__ import annotations

from connectors.lmcache.decoder import Place
from connectors.sources import Source
from schemas.settings import Lmcache, hash_domain

MOST_CHARACTERS = 256
"""Of a replica's id."""
HASH_SCHEME = "lmcache"
POOL = "pool"
"""Stands for the server in the names of what several servers share."""


def replica_id(place: Place) -> str | None:
    """Return `server@model`, `server:storage@model` or `pool:storage@model`; None if that cannot be an id.

    A server whose own name could be taken for a pool gets a `%` before it.
    """
    who = place.instance or POOL
    if place.instance == POOL or place.instance.startswith((f"{POOL}:", "%")):
        who = f"%{place.instance}"
    name = f"{who}:{place.backend}@{place.model}" if place.backend else f"{who}@{place.model}"
    return name if len(name) <= MOST_CHARACTERS and name.isprintable() else None


def source_at(place: Place, replica: str, settings: Lmcache) -> Source:
    """Return the source of a place."""
    return Source(
        replica=replica,
        dp_rank=0,
        model=place.model,
        tenant=settings.tenant,
        hash_domain=hash_domain(place.model, HASH_SCHEME, settings.tenant),
        place=(place.instance, place.backend, place.model),
        endpoint=f"kafka:{settings.topic}" if settings.topic else f"http://{settings.host}:{settings.port}",
    )
