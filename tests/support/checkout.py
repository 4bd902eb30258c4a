"""Where the files of the checkout are that tests read."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CAPTURES = ROOT / "tests" / "captures"
TRACES = ROOT / "tests" / "data" / "simulator"
