"""Text tables: columns as wide as their widest cell, no blanks at the end of a line."""

from __future__ import annotations

from pipeline.text_table import text_table


def test_columns_are_aligned_left_or_right() -> None:
    rows = [("name", "blocks", "trust"), ("a", "12", "complete"), ("longer", "3", "")]
    assert list(text_table(rows, right={1})) == [
        "name    blocks  trust",
        "a           12  complete",
        "longer       3",
    ]


def test_a_header_alone_is_a_table() -> None:
    assert list(text_table([("a", "b")])) == ["a  b"]


def test_a_narrow_table_leaves_out_what_it_may_and_says_so() -> None:
    rows = [("name", "a", "", "trust"), ("longer", "12345", "|||", "complete")]
    assert list(text_table(rows, width=28, expendable=(2, 1))) == list(text_table(rows))
    assert list(text_table(rows, right={1}, width=23, expendable=(2, 1))) == [
        "name        a  trust",
        "longer  12345  complete",
    ]
    assert list(text_table(rows, width=20, expendable=(2, 1))) == [
        "name    trust",
        "longer  complete",
        "(a wider terminal also shows: a)",
    ]


def test_columns_without_a_value_are_left_out_first_and_nobody_is_told() -> None:
    rows = [("name", "a", "b", "trust"), ("longer", "12345", "", "complete"), ("x", "1", "", "partial")]
    assert list(text_table(rows, right={1}, width=24, expendable=(1, 2))) == [
        "name        a  trust",
        "longer  12345  complete",
        "x           1  partial",
    ]
    assert list(text_table(rows, width=20, expendable=(1, 2)))[-1] == "(a wider terminal also shows: a)"
    assert next(text_table(rows)).split() == ["name", "a", "b", "trust"]


def test_names_of_others_break_no_line_and_move_no_cursor() -> None:
    lines = list(text_table([("replica", "trust"), ("x\x1b[31m\nverdict: healthy\x07\u202e", "complete")]))
    assert len(lines) == 2
    assert all(line.isprintable() for line in lines)
    assert "x\\x1b[31m\\nverdict: healthy\\x07\\u202e" in lines[1]
