"""Frozen sets of examples: those of every release, and today's as a release would keep them."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.generated.examples.files import RELEASED_DIRECTORY, freeze

ROOT = Path(__file__).parents[3]
RELEASED = sorted((ROOT / RELEASED_DIRECTORY).glob("*"))


@pytest.fixture
def frozen_now(tmp_path: Path) -> Path:
    """Today's examples, frozen for the test."""
    return freeze(tmp_path, "now")


@pytest.fixture(params=[None, *RELEASED], ids=lambda released: released.name if released else "now")
def frozen_set(request: pytest.FixtureRequest) -> Path:
    """A release's examples; today's are among the sets, so there is always one."""
    if request.param is not None:
        return request.param
    frozen: Path = request.getfixturevalue("frozen_now")
    return frozen
