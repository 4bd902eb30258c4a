"""Scan the messages of several streams in one call. No IO."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from connectors.frames.bundle import Bundle, Bundles
from connectors.normalise.columns import PUBLISHED_AT
from connectors.normalise.forwarding import NOTHING_FORWARDED, Forwarding
from connectors.normalise.scanned import Scanned
from connectors.normalise.scanner.layout import Bytes, Ints
from connectors.order.gathered import NOTHING, Gathered
from connectors.order.stream import SourceStream
from connectors.sources import SourceKey
from schemas.settings import Connector


class DealtTogether(NamedTuple):
    """What became of bundles whose turn it is."""

    scanned: list[Scanned | None]
    """The scanner's result for each; None where its stream cannot take that, or where it was gathered."""
    slots: dict[int, int]
    """By number of each gathered bundle, the slot that it went into."""


def scanned_together(
    streams: Sequence[SourceStream | None],
    bundles: Sequence[Bundle],
    received_at: Sequence[float],
    gathered: Gathered,
    settings: Connector,
    forwarding: Forwarding = NOTHING_FORWARDED,
) -> DealtTogether:
    """Scan bundle i for stream i, and gather it if it is simply the next of that stream.

    `forwarding` is that of the streams.
    """
    # numba takes a second to import, and not every process scans
    from connectors.normalise.scan import scan_joined
    from connectors.order.gathering import GATHERED

    scanned: list[Scanned | None] = [None] * len(streams)
    slots: dict[int, int] = {}
    chosen = [
        (number, stream, bundle)
        for number, (stream, bundle) in enumerate(zip(streams, bundles, strict=True))
        if stream is not None and stream.scans and bundle
    ]
    if not chosen:
        return DealtTogether(scanned, slots)
    times = [received_at[number] for number, _, _ in chosen]
    encoded, columns = scan_joined(
        [bundle for _, _, bundle in chosen],
        times,
        max_frame_bytes=settings.max_frame_bytes,
        forwarding=forwarding,
    )
    ends: Ints = np.cumsum([len(bundle) for _, _, bundle in chosen], dtype=np.int64)
    may_come = [
        NOTHING if bundle.malformed else gathered.numbers.get(stream.source.key, NOTHING)
        for _, stream, bundle in chosen
    ]
    outcomes = _gathered(encoded, columns, ends, np.array(may_come, np.int64), np.array(times), gathered)
    first = 0
    for (number, _, _), end, slot, outcome in zip(
        chosen, ends.tolist(), may_come, outcomes.tolist(), strict=True
    ):
        if outcome == GATHERED:
            slots[number] = slot
        else:
            scanned[number] = Scanned(encoded, columns[:, first:end])
        first = end
    return DealtTogether(scanned, slots)


class GatheredTogether(NamedTuple):
    """What became of the bundles of several sources."""

    others: list[tuple[int, Scanned | None]]
    """Numbers of those that were not gathered, with the scanner's result where they are in order."""
    slots: Ints
    """Slots that the gathered ones went into."""
    sizes: Ints
    """Bytes of the gathered ones."""


def gathered_together(
    sources: Sequence[SourceKey | None],
    bundles: Bundles,
    received_at: float,
    gathered: Gathered,
    settings: Connector,
    forwarding: Forwarding = NOTHING_FORWARDED,
) -> GatheredTogether:
    """Scan bundle i, of source i, and gather those that are simply the next batches of their source.

    None stands for a source that cannot take them now; `forwarding` is that of the sources.
    """
    # numba takes a second to import, and not every process scans
    from connectors.normalise.scan import parts_of, scan_side_by_side
    from connectors.order.gathering import GATHERED, IN_ORDER

    encoded, columns = scan_side_by_side(
        bundles.data,
        bundles.table,
        parts_of(bundles.ends, bundles.begins, received_at),
        max_frame_bytes=settings.max_frame_bytes,
        forwarding=forwarding,
    )
    numbers = [NOTHING if source is None else gathered.numbers.get(source, NOTHING) for source in sources]
    slots: Ints = np.array(numbers, np.int64)
    times = np.full(len(bundles), received_at)
    outcomes = _gathered(encoded, columns, bundles.ends, slots, times, gathered)
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


def _gathered(
    encoded: Bytes,
    columns: Ints,
    ends: Ints,
    slots: Ints,
    received_at: NDArray[np.float64],
    gathered: Gathered,
) -> Ints:
    """Gather scanned bundles; return what became of each (`gathering.gather`)."""
    from connectors.order.gathering import gather

    outcomes = np.empty(len(ends), np.int64)
    gather(
        encoded,
        columns,
        columns[PUBLISHED_AT].view(np.float64),
        ends,
        slots,
        received_at,
        gathered.encoded,
        gathered.fingerprints,
        gathered.heads,
        gathered.times,
        outcomes,
    )
    return outcomes
