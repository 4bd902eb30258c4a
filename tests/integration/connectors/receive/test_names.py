"""Engines whose names have addresses of one kind, or of both while the engine listens on one of them."""

from __future__ import annotations

import pytest

from tests.support.named_engines import ENGINES, read_by_name


@pytest.mark.night
def test_engines_are_read_whatever_kinds_of_address_their_names_have() -> None:
    all_of_them = [*range(len(ENGINES))]
    assert read_by_name() == {
        "subscriber": all_of_them,
        "recorder": all_of_them,
        "replay": [*range(2 * len(ENGINES))],
    }
