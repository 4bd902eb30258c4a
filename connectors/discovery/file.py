"""Watches the settings file: changes to its replicas take effect while the connector runs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Protocol

from connectors.discovery.presence import AbsenceTelemetry, Presence
from connectors.discovery.static import ReplicaInvalid, list_sources
from connectors.sources import Source
from schemas.settings import Settings

POLL_SECONDS = 2.0
"""Between two readings of the file. Changed `[[replicas]]` count once two of them agree."""


class SettingsUnreadable(Exception):
    """The settings cannot be read, or are wrong; the text says what and where."""


class FileTelemetry(AbsenceTelemetry, Protocol):
    """Where the watch reports what happens."""

    def settings_unreadable(self, reason: str) -> None: ...
    def restart_needed(self, path: Path) -> None: ...


class SettingsFile:
    """A file and how to read it; `read` returns all settings and raises SettingsUnreadable."""

    def __init__(self, path: Path, read: Callable[[], Settings]) -> None:
        self.path = path
        self.read = read

    def digest(self) -> bytes:
        """Return what distinguishes one content from another; raises SettingsUnreadable."""
        try:
            return sha256(self.path.read_bytes()).digest()
        except OSError as error:
            raise SettingsUnreadable(f"{self.path}: cannot read it: {error.strerror}") from error


class FileWatch:
    """The replicas of a settings file, as an origin: read again whenever its content has changed.

    New content counts when two polls in a row find it, so that half a file, as an editor may leave for a
    moment, does not remove the replicas of the other half. If it lacks most of the replicas, it has to stay
    for longer (`Presence`). A missing or wrong file is reported once and changes nothing.
    """

    name = "replicas"
    sharded = True

    def __init__(self, file: SettingsFile, settings: Settings, telemetry: FileTelemetry) -> None:
        """`settings` are those that the connector runs with."""
        self.sources: list[Source] = []
        self._file = file
        self._settings = settings
        self._telemetry = telemetry
        self._taken: bytes | None = None
        """Content whose replicas are those that the file named last."""
        self._seen: bytes | None = None
        """Content at the last poll; None if there was no file."""
        self._complaint = ""
        self._presence = Presence(self.name, telemetry)

    def poll(self) -> list[Source] | None:
        """Return the sources if new content counts from now on; block while reading the file."""
        try:
            digest = self._file.digest()
        except SettingsUnreadable as error:
            self._seen = None
            self._complain(str(error))
            return None
        before, self._seen = self._seen, digest
        if digest == self._taken:
            self._complaint = ""
            return None
        if digest != before:
            return None
        try:
            settings = self._file.read()
            sources = list_sources(settings.replicas)
            if self._file.digest() != digest:  # written meanwhile: half of it may have been read
                return None
        except (SettingsUnreadable, ReplicaInvalid) as error:
            self._complain(str(error))
            return None
        self._taken, self._complaint = digest, ""
        if _others(settings) != _others(self._settings):
            self._telemetry.restart_needed(self._file.path)
        return sources

    async def begin(self) -> None:
        """Begin with the replicas of the settings that the connector runs with. Raises ReplicaInvalid."""
        self.sources = self._presence.begin(list_sources(self._settings.replicas))

    async def follow(self, changed: Callable[[], None]) -> None:
        """Poll every POLL_SECONDS, for ever."""
        while True:
            polled = await asyncio.to_thread(self.poll)
            self.take(polled, time.monotonic(), changed)
            await asyncio.sleep(POLL_SECONDS)

    def take(self, polled: list[Source] | None, now: float, changed: Callable[[], None]) -> None:
        """Apply what a poll returned, and call `changed` if other sources may count now."""
        if polled is not None:
            self.sources = self._presence.answered(polled, now)
            changed()
        elif self._seen != self._taken:  # wrong, or new, or gone
            self._presence.unanswered()
        elif (confirmed := self._presence.again(now)) is not None:
            self.sources = confirmed
            changed()

    def _complain(self, reason: str) -> None:
        if reason != self._complaint:
            self._complaint = reason
            self._telemetry.settings_unreadable(reason)


def _others(settings: Settings) -> tuple[object, ...]:
    """Return the sections that a connector reads once, at its start."""
    return (
        settings.kafka,
        settings.connector,
        settings.discovery,
        settings.lmcache,
        settings.lmcache_kafka,
    )
