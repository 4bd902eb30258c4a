"""A recording as the records that a connector would have published."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from connectors.order.stream import SourceStream
from connectors.sources import Source
from pipeline.recordings.format import RecordedSource, Recording, replica_name
from schemas.events import EventsRecord
from schemas.settings import Connector, hash_domain


class RecordedEvents:
    """Reads the file once, from its beginning to its end or to its last whole frame."""

    def __init__(self, path: Path) -> None:
        """Raises OSError and RecordingError, as reading does."""
        # numba takes a second to import
        from connectors.normalise.scan import warm_up

        warm_up()
        self._recording = Recording(path)
        self.now = 0.0
        """When the frame that is being read was received."""
        name = replica_name(path)
        settings = Connector(linger_seconds=0.0)
        self._streams = [
            SourceStream(_source(source, number, name), settings, lambda: self.now)
            for number, source in enumerate(self._recording.sources)
        ]

    @property
    def sources(self) -> int:
        """How many were recorded."""
        return len(self._streams)

    @property
    def roles(self) -> dict[str, str]:
        """Roles by replica, of those that have one."""
        return {source.replica: source.role for source in self._recording.sources if source.role}

    @property
    def torn(self) -> bool:
        """Whether the file ended within a frame."""
        return self._recording.torn

    def __iter__(self) -> Iterator[EventsRecord]:
        for frame in self._recording.frames():
            self.now = frame.received_at
            stream = self._streams[frame.source]
            yield from stream.feed(frame.parts, frame.received_at)
            yield from stream.flush()
        self._recording.close()


def _source(source: RecordedSource, number: int, name: str) -> Source:
    # Sources recorded by address only differ by their number in the file.
    return Source(
        replica=source.replica or name,
        dp_rank=source.dp_rank if source.replica else number,
        model=source.model or "unknown",
        tenant=source.tenant,
        hash_domain=hash_domain(source.model or "unknown", source.hash_scheme, source.tenant),
        endpoint=source.endpoint,
        role=source.role,
    )
