"""Tables that lie alike in every state: what a clear drops comes in the order of their slots."""

from __future__ import annotations

import pytest

from pipeline.residency.stream import session


def with_one_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the tables of all sources one secret."""
    monkeypatch.setattr(session, "new_spread", lambda: 0x9E3779B97F4A7C15 >> 1 | 1)
