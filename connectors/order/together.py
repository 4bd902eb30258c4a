"""The messages of several streams through the scanner in one call. No IO."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from connectors.frames.bundle import Bundle
from connectors.frames.bundles import Bundles
from connectors.normalise.columns import PUBLISHED_AT
from connectors.normalise.scanned import Scanned
from connectors.normalise.scanner.layout import Ints
from connectors.order.gathered import NOTHING, Gathered
from connectors.order.stream import SourceStream
from connectors.sources import SourceKey
from schemas.settings import Connector


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


class GatheredTogether(NamedTuple):
    """What became of the bundles of several sources."""

    others: list[tuple[int, Scanned | None]]
    """Numbers of those that are not gathered, with what the scanner made of them where they are in order."""
    slots: Ints
    """Into which the gathered ones came."""
    sizes: Ints
    """Bytes of these."""


def gathered_together(
    sources: Sequence[SourceKey | None],
    bundles: Bundles,
    received_at: float,
    gathered: Gathered,
    settings: Connector,
) -> GatheredTogether:
    """Scan bundle i, of source i, and gather those that are simply the next batches of their source.

    None stands for a source that may not take them now.
    """
    # numba takes a second to import, and not everybody scans
    from connectors.normalise.scan import parts_of, scan_side_by_side
    from connectors.order.gathering import GATHERED, IN_ORDER, gather

    encoded, columns = scan_side_by_side(
        bundles.data,
        bundles.table,
        parts_of(bundles.ends, bundles.begins, received_at),
        max_frame_bytes=settings.max_frame_bytes,
        forward_session_ids=settings.forward_session_ids,
    )
    numbers = gathered.numbers
    slots: Ints = np.array([numbers.get(source, NOTHING) for source in sources], np.int64)
    outcomes = np.empty(len(bundles), np.int64)
    gather(
        encoded,
        columns,
        columns[PUBLISHED_AT].view(np.float64),
        bundles.ends,
        slots,
        received_at,
        gathered.encoded,
        gathered.fingerprints,
        gathered.heads,
        gathered.times,
        outcomes,
    )
    others: list[tuple[int, Scanned | None]] = []
    for number in np.flatnonzero(outcomes != GATHERED).tolist():
        scanned = None
        if outcomes[number] == IN_ORDER:
            first = bundles.ends[number - 1] if number else 0
            scanned = Scanned(encoded, columns[:, first : bundles.ends[number]])
        others.append((number, scanned))
    is_gathered = outcomes == GATHERED
    sizes = np.diff(bundles.begins, append=bundles.data.size)
    return GatheredTogether(others, slots[is_gathered], sizes[is_gathered])
