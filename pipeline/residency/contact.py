"""When and how a source was heard last, so that an idle engine, an unreachable one and silence differ."""

from __future__ import annotations

from schemas.checkpoints import ContactState


class Contact(ContactState):
    """What batches and the connector's words say; see `schemas.rows.StreamHealthRow` for what rows show."""

    def life_began(self) -> None:
        """Another life of the engine begins; whether it is reached is another matter."""
        self.last_batch_at, self.seen_live = None, False

    def live(self) -> None:
        """A batch came when it was due, so the source is connected."""
        self.seen_live = True
        self.disconnected_from = self.reported_to = None

    def reached(self) -> None:
        """The connector says that it reaches the source."""
        self.disconnected_from = self.reported_to = None

    def unreached(self, window: int) -> None:
        """The connector does not reach the source, or has ended it, in `window` or an earlier one."""
        if self.disconnected_from is None:
            self.disconnected_from = window
        self.reported_to = window if self.reported_to is None else max(window, self.reported_to)

    def connected_in(self, window: int) -> bool:
        """Tell whether the end of `window` found the source connected."""
        return self.disconnected_from is None or window < self.disconnected_from

    def event_time(self, told_at: float) -> float:
        """Return `told_at`, of the connector's clock, as the engine's clock has it."""
        return told_at + self.clock_offset
