"""The answer in a terminal: what it says of the range before, and how it is wrapped."""

from __future__ import annotations

from pipeline.advice.reading import Answer
from pipeline.advice.text import answer_lines

COMPARED = Answer(
    1, "Hit rate", "47 %", "up to 76 % possible", "▲ 2 points against the range before", 0.47, 0.45
)
ALONE = Answer(
    4, "Data", "7 of 7 complete", "newest rows 0 s old", "nothing to compare with before", 1.0, None
)


def test_a_change_is_named_only_where_there_was_something_before() -> None:
    assert list(answer_lines([COMPARED, ALONE], 100)) == [
        "Hit rate  47 %             up to 76 % possible (▲ 2 points against the range before)",
        "Data      7 of 7 complete  newest rows 0 s old",
    ]


def test_a_table_as_wide_as_it_likes_says_the_same() -> None:
    lines = [line.rstrip() for line in answer_lines([COMPARED, ALONE])]
    assert lines[0].endswith("up to 76 % possible  ▲ 2 points against the range before")
    assert lines[1].endswith("newest rows 0 s old")


def test_what_does_not_fit_goes_on_below_its_column() -> None:
    assert list(answer_lines([COMPARED], 40)) == [
        "Hit rate  47 %  up to 76 % possible (▲ 2",
        "                points against the range",
        "                before)",
    ]
