"""The quick look at a record finds fit what the thorough one does, and nothing else."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.fleet.acceptance import is_acceptable
from pipeline.kafka.acceptance import residency_refusal
from pipeline.kafka.decoding import decode_residency
from pipeline.kafka.refusal import RecordRefused
from schemas.residency import LATEST_CHANGE, ResidencyRecord
from tests.support.inputs.residency_walks import residency
from tests.support.suite.night import examples

COLUMNS = ("hashes", "kinds", "times", "block_sizes", "stored", "roots", "depths", "lora_codes")
MOMENTS = (-1.0, -0.0, 0.0, float("nan"), float("inf"), LATEST_CHANGE, np.nextafter(LATEST_CHANGE, np.inf))


def replaced(column: bytes, at: int, value: bytes) -> bytes:
    at = at % max(1, len(column) // len(value)) * len(value)
    return column[:at] + value + column[at + len(value) :]


def changed(name: str, column: bytes, rng: random.Random) -> bytes:
    """Return the column with another length, or with another value in it."""
    match rng.randrange(4):
        case 0:
            return b""
        case 1:
            return column[: rng.randrange(len(column) + 1)]
        case 2:
            return column + bytes(rng.choice((1, 2, 4, 8)))
    if name == "times":
        return replaced(column, rng.randrange(99), np.float64(rng.choice(MOMENTS)).tobytes())
    if name == "lora_codes":
        return replaced(column, rng.randrange(99), np.uint16(rng.randrange(6)).tobytes())
    return replaced(column, rng.randrange(99), bytes([rng.randrange(7)]))


@examples(500)
@given(st.integers(0, 1 << 30), st.integers(0, 2))
def test_both_looks_agree(seed: int, times: int) -> None:
    rng = random.Random(seed)
    record = residency(0, rng)
    parts = [part for source in record.sources for part in source.changes]
    for _ in range(times):
        part, name = rng.choice(parts), rng.choice(COLUMNS)
        setattr(part, name, changed(name, getattr(part, name), rng))
    assert is_acceptable(record) == (residency_refusal(record) is None)


@pytest.mark.parametrize(
    "beyond",
    [{"partition": 2**31}, {"partition": -1}, {"shard": 2**31}, {"clock_offset": -float(LATEST_CHANGE)}],
    ids=str,
)
def test_what_no_checkpoint_can_hold_is_no_record(beyond: dict[str, Any]) -> None:
    record = msgspec.structs.replace(ResidencyRecord(0, 0, 1, [], partitions=1, read_to=1.0), **beyond)
    with pytest.raises(RecordRefused, match="not_a_record"):
        decode_residency(msgspec.msgpack.encode(record), ())
