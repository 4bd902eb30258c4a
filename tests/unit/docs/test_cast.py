"""The moving picture of the demo shows what was on its terminal, and when."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from tests.system.cast import CLEAR, COLUMNS, chosen, screens, svg

RECORDING = [
    (1.0, "\r\x1b[Kstarting Kafka (0 s)"),
    (5.0, f"ready\r\n{CLEAR}blocks   10\r\na < b"),
    (5.1, " & c\r\n"),
    (16.0, f"{CLEAR}blocks   20\r\n"),
    (25.9, "\r\x1b[Kminute 1: a replica restarts\r\n"),
    (26.0, f"{CLEAR}blocks   30\r\n"),
    (45.5, f"{CLEAR}blocks   40\r\n\r\x1b[Kstopping (0 s)"),
]
SVG = "{http://www.w3.org/2000/svg}"


def test_screens_are_what_was_drawn_after_each_clearing() -> None:
    assert screens(RECORDING) == [
        (0.0, ["blocks   10", "a < b & c"]),
        (11.0, ["blocks   20"]),
        (21.0, ["blocks   30"]),
        (40.5, ["blocks   40"]),
    ]


def test_lines_that_are_too_long_go_on_below() -> None:
    ((_, lines),) = screens([(0.0, CLEAR + "x" * (COLUMNS + 2) + "\r\n\r\ny")])
    assert lines == ["x" * COLUMNS, "xx", "", "y"]


def test_codes_that_are_not_drawn_are_refused() -> None:
    with pytest.raises(SystemExit, match="does not draw"):
        screens([(0.0, f"{CLEAR}\x1b[31mred")])


def test_every_twenty_seconds_the_newest_screen_is_chosen() -> None:
    assert [lines[0] for _, lines in chosen(screens(RECORDING))] == [
        "blocks   10",
        "blocks   20",
        "blocks   30",
    ]


def test_picture_has_a_second_for_each_frame_and_its_texts_in_their_columns() -> None:
    picture = svg(chosen(screens(RECORDING)))
    frames = ElementTree.fromstring(picture).findall(f"{SVG}g")
    assert [[text.text for text in frame] for frame in frames] == [
        ["$ make demo", "0:00", "blocks", "10", "a < b & c"],
        ["$ make demo", "0:11", "blocks", "20"],
        ["$ make demo", "0:21", "blocks", "30"],
    ]
    assert [frame.get("style") for frame in frames] == [f"animation-delay:{s}s" for s in (-3, -2, -1)]
    assert "show 3s" in picture
    assert re.search(r'x="89.6" y="63" textLength="16.8">10<', picture)
