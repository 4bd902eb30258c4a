"""The row of a choice: it follows from the record and its offset alone. No IO."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

from schemas.choices import FIRST_WINS, ChoiceRecord
from schemas.fleet_rows import ChoiceRow

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def row_of(record: ChoiceRecord, offset: int) -> ChoiceRow:
    """Return the row of the record at `offset`; its time is cut to milliseconds."""
    return ChoiceRow(
        _EPOCH + timedelta(milliseconds=int(record.time * 1000)),
        record.model,
        record.replica,
        record.request_id,
        record.tenant,
        record.hash_domain,
        record.blocks,
        record.best_tokens,
        record.chosen_tokens,
        record.best_replica,
        record.not_judged or "",
        record.stale,
        record.index_age_seconds,
        record.trust,
        record.upper_bound,
        FIRST_WINS - offset,
    )
