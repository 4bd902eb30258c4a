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
