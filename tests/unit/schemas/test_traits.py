"""What records say of an engine."""

from __future__ import annotations

import pytest

from schemas.events import Stored, is_store_only


@pytest.mark.parametrize(
    ("medium", "raw_medium", "expected"),
    [
        ("gpu", None, False),
        ("cpu", None, False),
        ("cpu", "CPU_PINNED", False),
        ("cpu", "cpu", False),
        ("storage", None, True),
        ("fs", "fs", True),
        ("obj", None, True),
        ("disk", None, False),
    ],
)
def test_where_removals_are_not_announced(medium: str, raw_medium: str | None, expected: bool) -> None:
    assert is_store_only(Stored(b"", 16, medium=medium, raw_medium=raw_medium)) is expected
    told = Stored(b"", 16, medium=medium, raw_medium=raw_medium, store_only=True)
    assert is_store_only(told) is (medium != "gpu")
