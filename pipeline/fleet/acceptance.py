"""A fast check of whether a residency record may be applied."""

from __future__ import annotations

import numpy as np

from pipeline.kafka.acceptance import are_decisions, is_even
from schemas.residency import KINDS, LATEST_CHANGE, ResidencyRecord


def is_acceptable(record: ResidencyRecord) -> bool:
    """Return whether `acceptance.residency_refusal` would accept a record, in a fifth of the time."""
    if record.decisions is not None and not are_decisions(record.decisions):
        return False
    kinds: list[bytes] = []
    times: list[bytes] = []
    for source in record.sources:
        for changes in source.changes:
            codes = changes.lora_codes
            if not is_even(changes) or (codes and np.frombuffer(codes, "<u2").max() > len(changes.loras)):
                return False
            kinds.append(changes.kinds)
            times.append(changes.times)
    if b"".join(kinds).translate(None, KINDS):
        return False
    moments = np.frombuffer(b"".join(times), "<f8")
    return bool(((moments >= 0) & (moments <= LATEST_CHANGE)).all())
