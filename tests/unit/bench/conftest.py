"""The benchmarks are programs in a directory of their own and import each other by bare names."""

from __future__ import annotations

import sys

from tests.support.checkout import ROOT

# At the end: none of these names may hide another module.
sys.path.append(str(ROOT / "tests/bench"))
