"""What the log tells of every engine, read as anybody may read it."""

from __future__ import annotations

from dataclasses import dataclass, field

from schemas.events import Batch, Closed, Gap, Opened
from schemas.settings import Kafka
from tests.support.events_log import read_events


@dataclass
class Incarnation:
    """A life of an engine as the log tells it."""

    number: int
    first_seq: int = 0
    batches: dict[int, Batch] = field(default_factory=dict)
    gaps: list[Gap] = field(default_factory=list)
    closed: str = ""
    reached: int = -1
    """Of these numbers nothing counts that comes later."""

    @property
    def given_up(self) -> set[int]:
        return {seq for gap in self.gaps for seq in range(gap.first, gap.last + 1)}

    @property
    def last_seq(self) -> int:
        return max([-1, *self.batches, *(gap.last for gap in self.gaps)])


def read_incarnations(kafka: Kafka) -> dict[str, list[Incarnation]]:
    """Return the incarnations of every replica, in order.

    A record counts unless a later incarnation was there before it: two connectors may each open their own. A
    batch counts unless its number was there before, or was given up: what one connector has not got, another
    one may still write, but behind the gap there is no place for it.
    """
    found: dict[str, dict[int, Incarnation]] = {}
    for record in read_events(kafka):
        lives = found.setdefault(record.replica, {})
        if any(number > record.incarnation for number in lives):
            continue
        life = lives.setdefault(record.incarnation, Incarnation(record.incarnation))
        for batch in record.batches:
            if batch.seq is not None and batch.seq > life.reached:
                life.batches[batch.seq] = batch
                life.reached = batch.seq
            for event in batch.events:
                if isinstance(event, Gap):
                    life.gaps.append(event)
                    life.reached = max(life.reached, event.last)
                elif isinstance(event, Opened):
                    life.first_seq = event.first_seq
                elif isinstance(event, Closed):
                    life.closed = event.reason
    return {replica: [lives[number] for number in sorted(lives)] for replica, lives in found.items()}
