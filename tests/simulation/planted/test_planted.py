"""Each fault that was found once is found again by as many schedules as a core has in a minute."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.simulation.planted.faults import FAULTS

pytestmark = pytest.mark.night


@pytest.mark.parametrize("name", FAULTS)
def test_it_is_found(name: str) -> None:
    asked = [sys.executable, "-m", "tests.simulation.planted", name]
    run = subprocess.run(asked, capture_output=True, text=True, timeout=900)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "seed" in run.stdout
