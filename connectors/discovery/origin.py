"""What every origin of sources has in common, and which ones there are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from connectors.discovery.bound_origin import BoundOrigin
from connectors.discovery.dns import DnsTelemetry, NameWatch
from connectors.discovery.file import FileTelemetry, FileWatch, SettingsFile
from connectors.discovery.kubernetes.origin import PodOrigin, PodTelemetry
from connectors.discovery.shards import Shard
from connectors.discovery.static import ListedReplicas
from connectors.sources import Source
from schemas.settings import Settings


class Origin(Protocol):
    """A part of the settings that says, directly or by where it points, which sources are to be read."""

    name: str
    """What the settings call it; unique."""
    sharded: bool
    """Whether `connector.shard` decides which of its sources are read here."""

    @property
    def sources(self) -> Sequence[Source]:
        """The sources as of now."""

    async def begin(self) -> None:
        """Find the first sources. Raises ReplicaInvalid for settings that make no sense."""

    async def follow(self, changed: Callable[[], None]) -> None:
        """Keep `sources` up to date and call `changed` after each change; return if there can be none."""


class OriginTelemetry(FileTelemetry, DnsTelemetry, PodTelemetry, Protocol):
    """Where origins report what happens."""


def origins(
    settings: Settings, file: SettingsFile | None, bound: BoundOrigin, telemetry: OriginTelemetry
) -> list[Origin]:
    """Return all origins; where two of them claim a replica, the earlier one has it."""
    discovery = settings.discovery
    owns = Shard.of(settings.connector.shard).owns
    return [
        ListedReplicas(settings.replicas) if file is None else FileWatch(file, settings, telemetry),
        *(NameWatch(number, name, telemetry) for number, name in enumerate(discovery.dns)),
        *(PodOrigin(number, entry, owns, telemetry) for number, entry in enumerate(discovery.kubernetes)),
        bound,
    ]
