"""The demo's terminal begins with the answer, and what does not fit is left out."""

from __future__ import annotations

import os

from pipeline.advice.reading import Advice, AdviceFinding, Answer
from pipeline.local.demo.terminal import plain, screen

ANSWER = [
    Answer(1, "Prefill you could avoid", "57 %", "2.6k tokens/s ≈ 1.4 GPUs", "▲ 3 points", 0.57, 0.54),
    Answer(2, "Hit rate", "49 %", "up to 79 % possible", "", 0.49, None),
]
FINDING = AdviceFinding(
    *(1, "capacity", "m", "m/x/default", ["r0"], "r0", "r0 evicts what it fills again"),
    *("Give r0 2 GiB more", "saves at least 3k tokens/h", "", 3000.0, 3000.0, 4000.0, None, "unknown"),
    *("tokens", "replica", "SELECT 1"),
)
ADVICE = Advice(0, 899, ANSWER, [FINDING])
URLS = {"page": "http://127.0.0.1:8080/"}


def test_the_answer_comes_first_and_then_what_to_do() -> None:
    lines = screen([], (None, None), URLS, [], os.terminal_size((80, 24)), ADVICE).splitlines()
    assert lines[0] == "Prefill you could avoid  57 %  2.6k tokens/s ≈ 1.4 GPUs (▲ 3 points)"
    assert lines[1] == "Hit rate                 49 %  up to 79 % possible"
    assert lines[2].startswith("1. r0 evicts what it fills again. Give r0 2 GiB more: saves at least 3k")
    assert max(map(len, lines[:3])) <= 80


def test_without_an_answer_it_begins_as_before() -> None:
    for advice in (None, Advice(0, 899, [], [])):
        lines = screen([], (None, None), URLS, [], os.terminal_size((80, 24)), advice).splitlines()
        assert lines[0].startswith("kvlens demo: what is cached where")


def test_a_log_has_it_in_its_line() -> None:
    assert plain([], (None, None), ADVICE).endswith("; prefill you could avoid: 57 %; hit rate: 49 %")
    assert "prefill" not in plain([], (None, None))
