"""Where the files of the checkout are that tests read."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CAPTURES = ROOT / "tests" / "captures"
TRACES = ROOT / "tests" / "data" / "simulator"


def written_version() -> str:
    """Return the version that pyproject.toml says."""
    (version,) = re.findall(r'^version = "(.*)"$', (ROOT / "pyproject.toml").read_text("utf-8"), re.M)
    return version
