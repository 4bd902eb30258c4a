"""A choice's row, and which records of choices are left out."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

import msgspec
import pytest

from pipeline.generated.examples.catalogue import choice_examples
from pipeline.kafka.acceptance import accepted_choice, require_time_of_the_log
from pipeline.kafka.refusal import RecordRefused
from pipeline.worker.choices.rows import row_of
from schemas.fleet_rows import ChoiceRow

encode = msgspec.msgpack.encode
WORSE = choice_examples()["worse"]


def test_the_row_is_the_record_and_its_offset() -> None:
    at = datetime(2026, 1, 1, 0, 0, 0, 500_000, timezone.utc)
    assert row_of(WORSE, 17) == ChoiceRow(
        at, "qwen3-32b", "vllm-0", "req-8c1f", "default", "", 40, 512, 128, "vllm-3", "", False, 0.031,
        "partial", False, 2**63 - 18,
    )  # fmt: skip
    assert row_of(choice_examples()["not_judged"], 0).not_judged == "unknown_replica"
    assert row_of(WORSE, 17).version > row_of(WORSE, 18).version


def without(name: str, **more: Any) -> bytes:
    fields = {key: value for key, value in msgspec.to_builtins(WORSE).items() if key != name}
    return encode(fields | more)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "no_value"),
        (b"\xc1", "malformed"),
        (encode([1]), "not_a_record"),
        (without("replica"), "not_a_record"),
        (without("", request_id=""), "not_a_record"),
        (without("", request_id="x" * 129), "not_a_record"),
        (without("", time=-1.0), "not_a_record"),
        (without("", time=float("nan")), "not_a_record"),
        (without("", time=1e12), "not_a_record"),
        (without("", blocks=2**32), "not_a_record"),
        (without("", best_tokens=-1), "not_a_record"),
        (without("", not_judged="because"), "not_a_record"),
        (without("", index_age_seconds=float("inf")), "not_a_record"),
        (without("", trust="blind"), "not_a_record"),
        (without("", model=b"\xff"), "not_a_record"),
        (without("", chosen_tokens=513), "bad_choice"),
    ],
)
def test_what_fits_no_row_is_left_out(value: bytes | None, reason: str) -> None:
    with pytest.raises(RecordRefused) as refused:
        accepted_choice(value, (), None)
    assert refused.value.reason == reason


def test_a_choice_is_of_about_the_time_of_its_record() -> None:
    for written_at in (0.0, -1.0, WORSE.time, WORSE.time - 86_000, WORSE.time + 86_000):
        require_time_of_the_log(WORSE, written_at)
    for written_at in (1.0, WORSE.time - 86_401, WORSE.time + 86_401):
        with pytest.raises(RecordRefused) as refused:
            require_time_of_the_log(WORSE, written_at)
        assert refused.value.reason == "bad_time"


def test_nothing_of_a_record_can_hold_what_a_request_says() -> None:
    known = encode(WORSE)
    assert accepted_choice(without("", block_hashes=[1, 2], prompt="text"), (), None) == WORSE
    assert accepted_choice(known, (), None) == WORSE
