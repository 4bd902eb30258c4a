"""The answer in a terminal: what it says of the range before, and how it is wrapped."""

from __future__ import annotations

import msgspec

from pipeline.advice.reading import Advice, Answer
from pipeline.advice.text import NO_FINDING, answer_lines, as_text

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


def test_a_terminal_too_narrow_for_columns_gets_lines_of_text() -> None:
    assert list(answer_lines([COMPARED, ALONE], 30)) == [
        "Hit rate  47 %  up to 76 %",
        "   possible (▲ 2 points",
        "   against the range before)",
        "Data  7 of 7 complete  newest",
        "   rows 0 s old",
    ]


def advised(*answer: Answer) -> list[str]:
    return list(as_text(Advice(0, 1, list(answer), [])))


def test_complete_data_are_named_only_where_they_are() -> None:
    filled = msgspec.structs.replace(COMPARED, place=1, title="Prefill you could avoid")
    in_part = msgspec.structs.replace(ALONE, figure="3 of 7 complete", value=3 / 7)
    nothing = msgspec.structs.replace(ALONE, figure="0 of 15 complete", value=0.0)
    assert advised(filled, ALONE)[-1] == NO_FINDING
    for data in (in_part, nothing):
        assert "not all data are complete" in advised(filled, data)[-1]
    # Before any engine has said anything there is no prefill to save.
    for answer in ([nothing], [in_part], [ALONE]):
        assert advised(*answer)[-1].startswith("no finding: no engine has filled anything in this range")
