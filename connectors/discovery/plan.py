"""Computes which sources to remove, add or readdress. No IO."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from connectors.sources import Source, SourceKey

ClashReason = Literal[
    "id_taken",  # another origin has a replica of that id
    "endpoint_taken",  # another replica is read from that endpoint
]


@dataclass(frozen=True, slots=True)
class Clash:
    """A replica that two origins claim; the one that comes first has it."""

    replica: str
    origin: str
    reason: ClashReason
    owner: str
    """The origin that has it."""


@dataclass(frozen=True, slots=True)
class Plan:
    """To be applied in this order; a source to be reopened is in `removed` or `restarted`, and in `added`."""

    removed: tuple[Source, ...]
    restarted: tuple[Source, ...]
    """Their engines began a new session, as the origin reports."""
    added: tuple[Source, ...]
    readdressed: tuple[Source, ...]
    """Sources that continue: only their replay endpoint, metrics page or role has changed."""

    def __bool__(self) -> bool:
        return bool(self.removed or self.restarted or self.added or self.readdressed)


def merge(origins: Mapping[str, Sequence[Source]]) -> tuple[dict[SourceKey, Source], list[Clash]]:
    """Return the sources of all origins, and the replicas left out because an earlier origin has them.

    Sources of one origin may share an endpoint, as those that come through a listening socket do.
    """
    wanted: dict[SourceKey, Source] = {}
    ids: dict[str, str] = {}
    endpoints: dict[str, str] = {}
    clashes: dict[str, Clash] = {}
    for origin, sources in origins.items():
        for source in sources:
            owner = ids.get(source.replica)
            reader = endpoints.get(source.endpoint)
            if owner is not None and owner != origin:
                clash = Clash(source.replica, origin, "id_taken", owner)
                clashes.setdefault(source.replica, clash)
            elif reader is not None and reader != origin:
                clash = Clash(source.replica, origin, "endpoint_taken", reader)
                clashes.setdefault(source.replica, clash)
            else:
                ids[source.replica] = endpoints[source.endpoint] = origin
                wanted[source.key] = source
    return wanted, list(clashes.values())


def plan(present: Mapping[SourceKey, Source], wanted: Mapping[SourceKey, Source]) -> Plan:
    """Return what leads from the present sources to the wanted ones."""
    anew = {
        key for key, source in wanted.items() if key in present and _stream(source) != _stream(present[key])
    }
    reborn = {key for key in anew if wanted[key].session_name != present[key].session_name}
    return Plan(
        removed=tuple(
            source
            for key, source in present.items()
            if key not in wanted or (key in anew and key not in reborn)
        ),
        restarted=tuple(source for key, source in present.items() if key in reborn),
        added=tuple(source for key, source in wanted.items() if key not in present or key in anew),
        readdressed=tuple(
            source
            for key, source in wanted.items()
            if key in present and key not in anew and source != present[key]
        ),
    )


def _stream(source: Source) -> Source:
    """Return a source without what may change while its stream goes on."""
    return replace(source, replay_endpoint=None, metrics_url=None, role="")
