"""A release of the chart in a namespace of a real API server that enforces restricted pods."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.fleet.chart.helm import Helm
from tests.fleet.control_plane import ControlPlane
from tests.fleet.real_parts import Programs
from tests.support.chart import CHART, JSON
from tests.support.checkout import ROOT

TIMEOUT = "300s"
"""Of helm and kubectl; nothing takes it when all is well."""


class Release:
    """Called `kvlens`, in the namespace `namespace`."""

    def __init__(self, plane: ControlPlane, programs: Programs, home: Path, namespace: str) -> None:
        self.namespace = namespace
        self._plane, self._programs, self._home = plane, programs, home
        self._kubectl = [str(programs["kubectl"]), f"--kubeconfig={plane.kubeconfig}"]
        self._helm = Helm(programs["helm"], home, plane.kubeconfig)

    def elsewhere(self, namespace: str) -> Release:
        """Return the same for another namespace."""
        return Release(self._plane, self._programs, self._home, namespace)

    def paste(self, commands: str, files: Mapping[str, str]) -> None:
        """Run lines in a shell as a reader does, in a checkout with some files more."""
        (self._home / "deploy").symlink_to(ROOT / "deploy")
        for name, text in files.items():
            (self._home / name).write_text(text, "utf-8")
        for name in ("helm", "kubectl"):
            (self._home / "bin").mkdir(exist_ok=True)
            (self._home / "bin" / name).symlink_to(self._programs[name])
        environment = {
            "HOME": str(self._home),
            "KUBECONFIG": str(self._plane.kubeconfig),
            "PATH": f"{self._home / 'bin'}:{os.environ['PATH']}",
        }
        done = subprocess.run(
            ["bash", "-e", "-c", commands],
            cwd=self._home,
            env=environment,
            capture_output=True,
            text=True,
            timeout=330,
        )
        assert done.returncode == 0, done.stderr

    def make_namespace(self, name: str) -> None:
        labels = {"pod-security.kubernetes.io/enforce": "restricted"}
        self.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})

    def install(self, values: JSON, *options: str) -> None:
        self.helm("install", "kvlens", str(CHART), "--wait", "--timeout", TIMEOUT, *options, values=values)

    def upgrade(self, values: JSON, *options: str) -> None:
        self.helm("upgrade", "kvlens", str(CHART), "--wait", "--timeout", TIMEOUT, *options, values=values)

    def helm(self, *arguments: str, values: JSON | None = None) -> str:
        return self._helm(*arguments, "--namespace", self.namespace, values=values)

    def history(self) -> list[tuple[int, str]]:
        """Return (revision, status) of each."""
        found = json.loads(self.helm("history", "kvlens", "--output", "json"))
        return [(each["revision"], each["status"]) for each in found]

    def kubectl(self, *arguments: str, given: str = "") -> str:
        command = [*self._kubectl, *arguments]
        done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=330)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def apply(self, *documents: JSON, options: tuple[str, ...] = ()) -> None:
        given = json.dumps({"apiVersion": "v1", "kind": "List", "items": documents})
        self.kubectl("apply", "--server-side", *options, "-f", "-", given=given)

    def secret(self, name: str, **data: str) -> None:
        document = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": data}
        self.apply(document, options=("--namespace", self.namespace))

    def found(self, kind: str, name: str = "") -> list[JSON]:
        """Return the objects of a kind in the namespace, or the one of this name."""
        chosen = [f"--field-selector=metadata.name={name}"] if name else []
        text = self.kubectl("get", kind, "--namespace", self.namespace, *chosen, "-o", "json")
        return list(json.loads(text)["items"])

    def pods(self, component: str) -> dict[str, str]:
        """Return {pod: UID} of those that are not about to go."""
        return {
            pod["metadata"]["name"]: pod["metadata"]["uid"]
            for pod in self.found("pods")
            if pod["metadata"]["labels"]["app.kubernetes.io/component"] == component
            and "deletionTimestamp" not in pod["metadata"]
        }

    def template(self, workload: str) -> dict[str, Any]:
        """Return the pod template of a workload such as `deployments/kvlens-worker`."""
        kind, _, name = workload.partition("/")
        (found,) = self.found(kind, name)
        return dict(found["spec"]["template"])
