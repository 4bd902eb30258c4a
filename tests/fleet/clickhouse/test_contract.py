"""What the tests say of the embedded store, a real server does as well."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.support.checkout import ROOT

CONTRACT = (
    "tests/integration/pipeline/clickhouse",
    "tests/integration/pipeline/local/clickhouse/test_embedded.py",
    "tests/integration/pipeline/local/clickhouse/http/test_http.py",
    "tests/integration/pipeline/dashboards/test_boards.py",
)


def test_a_real_server_keeps_the_contract_of_the_embedded_store(library: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", f"--clickhouse={library}", *CONTRACT],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
