"""What a kubelet tells the API server of pods, without running them: ready, or done."""

from __future__ import annotations

import threading
from types import TracebackType

from tests.fleet.chart.api import JSON, Api, running, terminated
from tests.fleet.control_plane import ControlPlane

PAUSE_SECONDS = 0.1


class Kubelet:
    """A thread that looks at the pods of all workloads, again and again."""

    def __init__(self, plane: ControlPlane) -> None:
        self._api = Api(plane)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kubelet", daemon=True)
        self.failing: set[str] = set()
        """Namespaces in which what should end, ends with code 1."""
        self.left_alone: set[str] = set()
        """Namespaces whose pods run, see `node.py`."""

    def __enter__(self) -> Kubelet:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(PAUSE_SECONDS):
            try:
                for pod in self._api.ask("GET", "/api/v1/pods?fieldSelector=status.phase=Pending")["items"]:
                    self._see(pod)
            except OSError:  # the pod changed or went meanwhile, or a test killed the server
                continue

    def _see(self, pod: JSON) -> None:
        metadata = pod["metadata"]
        of_a_workload = "ownerReferences" in metadata and "deletionTimestamp" not in metadata
        if not of_a_workload or metadata["namespace"] in self.left_alone:
            return
        names = [container["name"] for container in pod["spec"]["containers"]]
        if pod["spec"]["restartPolicy"] == "Never":
            code = int(metadata["namespace"] in self.failing)
            states = dict.fromkeys(names, terminated(code))
            self._api.report(pod, "Failed" if code else "Succeeded", False, states)
        else:
            self._api.report(pod, "Running", True, dict.fromkeys(names, running(pod)))
