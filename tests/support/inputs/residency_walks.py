"""Residency records of a few sources in which every column has something to say."""

from __future__ import annotations

import random

import numpy as np

from schemas.residency import EVICTED, FILLED, ResidencyChanges, ResidencyRecord, SourceChanges
from tests.support.inputs.source_walks import BEGAN


def residency(offset: int, rng: random.Random, *, names: str = "abc") -> ResidencyRecord:
    """Return the record at an offset: changes of a source of each name, in nine seconds."""
    sources = []
    for name in names:
        count = rng.randint(1, 30)
        kinds = bytes(rng.choice([FILLED, FILLED, EVICTED]) for _ in range(count))
        hashes = np.array([rng.randrange(1, 200) for _ in range(count)], ">u8").tobytes()
        times = np.sort(BEGAN + 9 * offset + np.array([rng.random() for _ in range(count)])).astype("<f8")
        fills = kinds.count(FILLED)
        changes = ResidencyChanges(
            rng.choice(["gpu", "gpu", "cpu", "fs"]),
            0,
            hashes,
            kinds,
            times.tobytes(),
            np.full(count, 16, "<u4").tobytes(),
            stored=np.arange(count, dtype="<u4").tobytes(),
            roots=hashes[:8] * fills,
            depths=bytes(2 * fills),
            loras=["a", "b"],
            lora_codes=np.array([rng.randrange(3) for _ in range(fills)], "<u2").tobytes(),
            ends=hashes[8:16] * fills,
        )
        sources.append(SourceChanges(name, "m", "d", 0, 1 + offset // 20, "complete", [changes]))
    return ResidencyRecord(0, 0, offset, sources)
