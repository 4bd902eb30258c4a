"""The helm command, and how its output becomes JSON."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

JSON = dict[str, Any]


class HelmFailed(Exception):
    """helm ended with an error, which is its text."""


class Helm:
    """Runs helm with directories of its own; `kubeconfig` names the cluster, if there is one."""

    def __init__(self, program: Path, home: Path, kubeconfig: Path | None = None) -> None:
        self.program = program
        self._environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "HELM_CACHE_HOME": str(home / "cache"),
            "HELM_CONFIG_HOME": str(home / "config"),
            "HELM_DATA_HOME": str(home / "data"),
            "KUBECONFIG": str(kubeconfig or home / "none"),
        }

    def __call__(self, *arguments: str, values: JSON | None = None) -> str:
        """Return what it prints; raises HelmFailed."""
        given = [] if values is None else ["--values", "-"]
        done = subprocess.run(
            [str(self.program), *arguments, *given],
            input="" if values is None else json.dumps(values),
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=330,
        )
        if done.returncode:
            raise HelmFailed(done.stderr + done.stdout)
        return done.stdout


def manifests(kubectl: Path, text: str) -> list[JSON]:
    """Return the objects of rendered YAML, in its order, as kubectl reads them."""
    converted: Sequence[str] = [str(kubectl), "label", "--local", "-f", "-", "-o", "json", "read-by=kubectl"]
    done = subprocess.run(converted, input=text, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    decoder = json.JSONDecoder()
    found, rest = [], done.stdout.strip()
    while rest:
        document, end = decoder.raw_decode(rest)
        del document["metadata"]["labels"]["read-by"]
        found.append(document)
        rest = rest[end:].lstrip()
    return found
