"""The messages of several streams through the scanner in one call. No IO."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from connectors.frames.bundle import Bundle
from connectors.order.stream import SourceStream
from schemas.settings import Connector

if TYPE_CHECKING:
    from connectors.normalise.scan import Scanned


def scanned_together(
    streams: Sequence[SourceStream | None],
    bundles: Sequence[Bundle],
    received_at: Sequence[float],
    settings: Connector,
) -> list[Scanned | None]:
    """Return what the scanner makes of bundle i for stream i; None where a stream may not take that."""
    # numba takes a second to import, and not everybody scans
    from connectors.normalise.scan import scan_together

    scanned: list[Scanned | None] = [None] * len(streams)
    chosen = [
        number
        for number, (stream, bundle) in enumerate(zip(streams, bundles, strict=True))
        if stream is not None and stream.scans and bundle
    ]
    if not chosen:
        return scanned
    together = scan_together(
        [bundles[number] for number in chosen],
        [received_at[number] for number in chosen],
        max_frame_bytes=settings.max_frame_bytes,
        forward_session_ids=settings.forward_session_ids,
    )
    for number, each in zip(chosen, together, strict=True):
        scanned[number] = each
    return scanned
