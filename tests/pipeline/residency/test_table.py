"""The block table against a dict."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.residency.table import ABSENT, BlockTable, hashes_of, keys_of

# Keys that share their high bits share a bucket, so that overflow into the next one is exercised.
crowded = st.integers(0, 3).flatmap(lambda high: st.integers(1, 40).map(lambda low: (high << 62) | low))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.dictionaries(crowded, st.integers(0, 3), max_size=30), max_size=12))
def test_table_equals_dict(rounds: list[dict[int, int]]) -> None:
    table = BlockTable()
    model: dict[int, int] = {}
    for wanted in rounds:
        keys = np.array(sorted(wanted), np.uint64)
        slots = table.find(keys)
        for key, slot in zip(keys.tolist(), slots.tolist(), strict=True):
            assert (slot != ABSENT) == (key in model)
            if slot != ABSENT:
                assert table.keys[slot] == key
                assert table.copies[slot] == model[key]
        known = slots != ABSENT
        table.copies[slots[known]] = [wanted[key] for key in keys[known].tolist()]
        table.free(slots[known & np.array([wanted[key] == 0 for key in keys.tolist()], np.bool_)])
        coming = keys[~known & np.array([wanted[key] > 0 for key in keys.tolist()], np.bool_)]
        placed = table.insert(coming)  # may replace the columns, so it comes first
        table.copies[placed] = [wanted[key] for key in coming.tolist()]
        for key, copies in wanted.items():
            model[key] = copies
            if not copies:
                del model[key]
        assert sorted(table.keys[table.live()].tolist()) == sorted(model)


@given(st.lists(st.integers(0, 2**64 - 1), max_size=50))
def test_keys_are_a_bijection_of_hashes(hashes: list[int]) -> None:
    packed = np.array(hashes, np.uint64)
    assert hashes_of(keys_of(packed)).tolist() == hashes
