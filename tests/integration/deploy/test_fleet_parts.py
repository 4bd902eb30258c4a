"""`make test-fleet` without some of its parts: the others are tried, and one line says what is missing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.checkout import ROOT
from tests.support.processes import environment

KUBERNETES = "no etcd, kube-apiserver, kube-controller-manager, kubectl, helm: set KUBEBUILDER_ASSETS to"
COLLECTOR = "no otelcol: set KUBEBUILDER_ASSETS to"
CLICKHOUSE = "no ClickHouse server: set KVLENS_CLICKHOUSE_LIBRARY to"


def ran(directory: Path, *arguments: str) -> tuple[int, str]:
    """Run Python on a machine with neither Go nor npm, on which nothing was fetched or built before."""
    there = {"PATH": str(directory), "XDG_CACHE_HOME": str(directory), "PYTEST_ADDOPTS": ""}
    clean = {name: value for name, value in environment(there).items() if name != "KUBEBUILDER_ASSETS"}
    done = subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=ROOT,
        env=clean,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
        check=False,
    )
    return done.returncode, done.stdout


def test_what_cannot_be_had_is_told_in_a_line_and_stops_nothing(tmp_path: Path) -> None:
    for module, *missing in (
        (
            "tests.fleet.real_parts",
            f"Kubernetes and Helm: {KUBERNETES}",
            f"OpenTelemetry's collector: {COLLECTOR}",
        ),
        ("tests.fleet.clickhouse.library", f"a ClickHouse server: {CLICKHOUSE}"),
    ):
        code, said = ran(tmp_path, module)
        assert code == 0
        for line, what in zip(said.splitlines(), missing, strict=True):
            assert line.startswith(f"make test-fleet without {what}")


@pytest.mark.night
def test_the_tests_that_need_it_say_why_they_were_left_out(tmp_path: Path) -> None:
    files = ("tests/fleet/test_discovery.py", "tests/fleet/clickhouse/test_rights.py")
    code, said = ran(tmp_path, "pytest", "-q", "-rs", "-p", "no:cacheprovider", *files)
    assert code == 0, said
    told = " ".join(said.split())
    assert f"neither Kubernetes nor Helm was tried: {KUBERNETES}" in told
    assert f"no ClickHouse server was tried: {CLICKHOUSE}" in told
