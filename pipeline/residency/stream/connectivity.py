"""When and how a source was heard last, to tell an idle engine, an unreachable one and silence apart.

See `schemas.rows.StreamHealthRow` for what rows show of it.
"""

from __future__ import annotations

from schemas.checkpoints import ConnectivityState


def live(connectivity: ConnectivityState) -> None:
    """Note a batch that came when it was due: the source is connected."""
    connectivity.seen_live = True
    reached(connectivity)


def reached(connectivity: ConnectivityState) -> None:
    """Note that the connector reaches the source."""
    connectivity.disconnected_from = connectivity.reported_to = None


def unreached(connectivity: ConnectivityState, window: int) -> None:
    """Note that the connector does not reach the source, or has ended it, in `window` or an earlier one."""
    if connectivity.disconnected_from is None:
        connectivity.disconnected_from = window
    reported = connectivity.reported_to
    connectivity.reported_to = window if reported is None else max(window, reported)


def connected_in(connectivity: ConnectivityState, window: int) -> bool:
    """Return whether the source was connected at the end of `window`."""
    return connectivity.disconnected_from is None or window < connectivity.disconnected_from


def event_time(connectivity: ConnectivityState, at: float) -> float:
    """Return `at`, a time of the connector's clock, as one of the engine's clock."""
    return at + connectivity.clock_offset
