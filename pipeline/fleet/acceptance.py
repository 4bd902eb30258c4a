"""A quick look at a residency record: whether it may be applied."""

from __future__ import annotations

import numpy as np

from schemas.hashes import HASH_BYTES
from schemas.residency import FILLED, KINDS, LATEST_CHANGE, ResidencyRecord


def is_acceptable(record: ResidencyRecord) -> bool:
    """Return whether `acceptance.residency_refusal` has nothing against a record, in a fifth of the time."""
    kinds: list[bytes] = []
    times: list[bytes] = []
    for source in record.sources:
        for changes in source.changes:
            count = len(changes.kinds)
            fills = changes.kinds.count(FILLED)
            if (
                len(changes.hashes) != HASH_BYTES * count
                or len(changes.times) != 8 * count
                or len(changes.block_sizes) != 4 * count
                or (changes.stored and len(changes.stored) != 4 * count)
                or (changes.roots and len(changes.roots) != 8 * fills)
                or (changes.depths and len(changes.depths) != 2 * fills)
            ):
                return False
            codes = changes.lora_codes
            if codes and (len(codes) != 2 * fills or np.frombuffer(codes, "<u2").max() > len(changes.loras)):
                return False
            kinds.append(changes.kinds)
            times.append(changes.times)
    if b"".join(kinds).translate(None, KINDS):
        return False
    moments = np.frombuffer(b"".join(times), "<f8")
    return bool(((moments >= 0) & (moments <= LATEST_CHANGE)).all())
