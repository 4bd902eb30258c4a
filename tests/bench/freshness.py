"""From an engine's event to a row that a query finds, under the load of the demo."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile

from figures import Figures

SECONDS = 45


def run(figures: Figures) -> None:
    """Run the demo headless and take its own measurement."""
    with tempfile.TemporaryDirectory(prefix="kvlens-bench-") as directory:
        command = ["demo", "--seconds", str(SECONDS), "--json", "--data-dir", directory]
        result = subprocess.run(
            [sys.executable, "-m", "pipeline.cli.main", *command], capture_output=True, text=True, check=True
        )
    summary = json.loads(result.stdout)
    figures.add("demo: parts ready after", summary["ready_seconds"], "s")
    for quantile in ("p50", "p99"):
        figures.add(f"demo: event to queryable row, {quantile}", summary["freshness_seconds"][quantile], "s")
