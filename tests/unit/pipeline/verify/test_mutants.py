"""Worker and recount agree on what every publisher might send, wherever records, fetches and checkpoints end.

`tests.fuzz.recounts` says how. A seed brings a log and all cuts back; each of these once told of a
difference.
"""

from __future__ import annotations

from collections import Counter

import pytest

from tests.fuzz.mutants import Mutants
from tests.fuzz.recounts import compared
from tests.support.in_parts import read_in_parts

SEEDS = (4, 5, 9, 11, 15, 21, 25, 32)
PAYLOADS = 600


@pytest.mark.night
def test_every_row_is_that_of_the_recount(monkeypatch: pytest.MonkeyPatch) -> None:
    mutants = Mutants(seed=1)
    differences: dict[int, list[str]] = {}
    rows: Counter[str] = Counter()
    restored = plain = partly = 0
    for seed in SEEDS:
        with monkeypatch.context() as patched:
            if seed % 2:
                read_in_parts(patched)
            written, findings = compared(seed, mutants, PAYLOADS)
        differences[seed] = [str(difference) for difference in findings.kept]
        assert not findings.left_out
        rows += findings.compared
        restored += written.restored
        plain += written.plain
        partly += written.partly
    assert differences == {seed: [] for seed in SEEDS}
    # They come as far as every table, and go every way there is.
    assert min(rows[table] for table in ("occupancy_10s", "flow_10s", "stream_health_10s")) > 200
    assert min(rows[table] for table in ("sources", "residency", "fills_10s", "redundancy_10s")) > 10
    assert restored >= len(SEEDS)
    assert plain >= len(SEEDS)
    assert partly >= len(SEEDS) // 2
