"""Connectors as they are once the scanner is compiled."""

from __future__ import annotations

import pytest

from connectors.normalise.scan import warm_up


@pytest.fixture(scope="session", autouse=True)
def compiled() -> None:
    warm_up()
