"""Example records of the topic of choices: one that lost tokens, and one that nobody could judge."""

from __future__ import annotations

from schemas.choices import ChoiceRecord

DECIDED_AT = 1_767_225_600.5


def choice_examples() -> dict[str, ChoiceRecord]:
    """Return {name: record}."""
    return {
        "worse": ChoiceRecord(
            "req-8c1f",
            DECIDED_AT,
            "qwen3-32b",
            "vllm-0",
            blocks=40,
            best_tokens=512,
            chosen_tokens=128,
            best_replica="vllm-3",
            index_age_seconds=0.031,
            trust="partial",
        ),
        "not_judged": ChoiceRecord(
            "req-8c20",
            DECIDED_AT,
            "qwen3-32b",
            "vllm-9",
            blocks=12,
            not_judged="unknown_replica",
            stale=True,
            index_age_seconds=7.5,
        ),
    }
