"""When and how a source was heard last, so that an idle engine, an unreachable one and silence differ.

See `schemas.rows.StreamHealthRow` for what rows show of it.
"""

from __future__ import annotations

from schemas.checkpoints import ConnectivityState


def life_began(connectivity: ConnectivityState) -> None:
    """Another life of the engine begins; whether it is reached is another matter."""
    connectivity.last_batch_at, connectivity.seen_live = None, False


def live(connectivity: ConnectivityState) -> None:
    """A batch came when it was due, so the source is connected."""
    connectivity.seen_live = True
    reached(connectivity)


def reached(connectivity: ConnectivityState) -> None:
    """The connector says that it reaches the source."""
    connectivity.disconnected_from = connectivity.reported_to = None


def unreached(connectivity: ConnectivityState, window: int) -> None:
    """The connector does not reach the source, or has ended it, in `window` or an earlier one."""
    if connectivity.disconnected_from is None:
        connectivity.disconnected_from = window
    reported = connectivity.reported_to
    connectivity.reported_to = window if reported is None else max(window, reported)


def connected_in(connectivity: ConnectivityState, window: int) -> bool:
    """Tell whether the end of `window` found the source connected."""
    return connectivity.disconnected_from is None or window < connectivity.disconnected_from


def event_time(connectivity: ConnectivityState, at: float) -> float:
    """Return `at`, of the connector's clock, as the engine's clock has it."""
    return at + connectivity.clock_offset
