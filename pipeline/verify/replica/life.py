"""What is known of one engine session."""

from __future__ import annotations

from dataclasses import dataclass, field

from pipeline.verify.replica.engine_capacity import EngineCapacity
from schemas.events import MOST_REMARKS, EventsRecord


@dataclass
class Life:
    """The state of one engine session; nothing of it holds for the next."""

    incarnation: int = 0
    opened_at: float = 0.0
    model: str = ""
    hash_domain: str = ""
    tenant: str = ""
    engine: str = ""
    wire_era: str = ""
    may_reannounce: bool | None = None
    copies_proved: bool = False
    """Whether a removal proved that blocks which seemed announced again were copies."""
    one_copy: bool = False
    clears_all: bool = False
    remarks: list[str] = field(default_factory=list)
    capacity: EngineCapacity = field(default_factory=EngineCapacity)
    closed_at: float | None = None
    closed_reason: str = ""
    first_seq: int | None = None
    last_seq: int = -1
    not_understood: set[int] = field(default_factory=set)
    """Numbers right after `last_seq` of batches that came and could not be understood: not lost."""
    last_batch_at: float | None = None
    seen_live: bool = False

    def heard(self, record: EventsRecord) -> None:
        """Update the session with what a record says of the engine."""
        self.engine = record.engine or self.engine
        self.wire_era = record.wire_era or self.wire_era
        if record.may_reannounce is not None:
            self.may_reannounce = record.may_reannounce
        self.one_copy = record.one_copy
        if record.clears_all is not None:
            self.clears_all = record.clears_all
        for remark in record.remarks:
            self.remarked(remark)

    def remarked(self, remark: str) -> None:
        """Keep a remark, once, while there is room."""
        if remark not in self.remarks and len(self.remarks) < MOST_REMARKS:
            self.remarks.append(remark)

    def advance(self, seq: int) -> None:
        """Move on past the batch with this number."""
        self.last_seq = seq
        if self.not_understood:
            self.not_understood = {number for number in self.not_understood if number > seq}

    def missing_before(self, seq: int) -> int:
        """Return how many batches are lost if the next one has this number."""
        skipped = range(self.last_seq + 1, seq)
        return len(skipped) - sum(number in skipped for number in self.not_understood)

    def ended_unseen(self, reason: str) -> None:
        """Note an end that nobody saw, as of the last batch."""
        self.closed_at = self.known_until(self.opened_at)
        self.closed_reason = reason

    def known_until(self, at: float) -> float:
        """Return the time since which a loss noticed at `at` may date: that of the last batch, else `at`."""
        return at if self.last_batch_at is None else self.last_batch_at
