"""How long a step of a test may take."""

from __future__ import annotations

from tests.support.suite.hangs import allowed


def test_a_machine_that_has_nothing_else_to_do_gives_no_more() -> None:
    assert allowed(120, load=0.0, processors=2) == 120
    assert allowed(120, load=4.0, processors=2) == 120


def test_twice_the_load_gives_twice_the_time() -> None:
    assert allowed(120, load=12.0, processors=2) == 360
    assert allowed(120, load=12.0, processors=4) == 180
