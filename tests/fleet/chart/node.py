"""A node that runs the pods of one namespace: kvlens as processes, each at a loopback address of its own."""

from __future__ import annotations

import base64
import itertools
import re
import signal
import subprocess
import threading
import urllib.request
from pathlib import Path
from types import TracebackType

from tests.fleet.chart.api import JSON, Api, running, terminated
from tests.fleet.control_plane import ControlPlane
from tests.support.processes import KVLENS, environment

PAUSE_SECONDS = 0.2
_addresses = itertools.count(1)


class Pod:
    """Containers of a pod, one after the other, then the last one until it is stopped."""

    def __init__(self, api: Api, pod: JSON, directory: Path) -> None:
        self.address = f"127.0.4.{next(_addresses)}"
        self._directory = directory
        self._places: dict[str, Path] = {}
        """Where in a container -> where here."""
        namespace = f"/api/v1/namespaces/{pod['metadata']['namespace']}"
        for volume in pod["spec"]["volumes"]:
            place = directory / volume["name"]
            place.mkdir(parents=True)
            if "configMap" in volume:
                found = api.ask("GET", f"{namespace}/configmaps/{volume['configMap']['name']}")
                for name, text in found["data"].items():
                    (place / name).write_text(text)
            for source in volume.get("projected", {}).get("sources", []):
                found = api.ask("GET", f"{namespace}/secrets/{source['secret']['name']}")
                for item in source["secret"]["items"]:
                    path = place / item["path"]
                    path.parent.mkdir(exist_ok=True)
                    path.write_bytes(base64.b64decode(found["data"][item["key"]]))
        self._labels = pod["metadata"]["labels"]
        self._left = [*pod["spec"].get("initContainers", []), *pod["spec"]["containers"]]
        self._ends = pod["spec"]["restartPolicy"] == "Never"
        self._start()

    def _start(self) -> None:
        container = self._left[0]
        for mount in container["volumeMounts"]:
            self._places[mount["mountPath"]] = self._directory / mount["name"]
        given = {"TMPDIR": str(self._directory / "tmp")}
        for each in container["env"]:
            if "valueFrom" in each:
                (label,) = re.findall(
                    r"metadata\.labels\['(.*)'\]", each["valueFrom"]["fieldRef"]["fieldPath"]
                )
                given[each["name"]] = self._labels[label]
                continue
            value = re.sub(r"\$\((\w+)\)", lambda name: given[name[1]], each["value"])
            for place, here in self._places.items():
                value = value.replace(place, str(here)) if value.startswith(f"{place}/") else value
            given[each["name"]] = value.replace("0.0.0.0", self.address)
        with (self._directory / f"{container['name']}.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*KVLENS, *container["args"]],
                cwd=self._directory,
                env=environment(given),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    @property
    def code(self) -> int | None:
        """Exit code of a pod that is done; None while it runs. What should run is started again."""
        code = self._process.poll()
        if code is None:
            return None
        if self._ends and (code or len(self._left) == 1):
            return code
        if self._ends:
            del self._left[0]
        self._start()
        return None

    @property
    def ready(self) -> bool:
        """What its readiness probe says."""
        container = self._left[0]
        if "readinessProbe" not in container:
            return False
        probe = container["readinessProbe"]["httpGet"]
        (port,) = [each["containerPort"] for each in container["ports"] if each["name"] == probe["port"]]
        try:
            with urllib.request.urlopen(f"http://{self.address}:{port}{probe['path']}", timeout=5):
                return True
        except OSError:
            return False

    def ask_to_end(self) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


class Node:
    """A thread that does to processes what the API server says of pods, and tells it what became of them."""

    def __init__(self, plane: ControlPlane, namespace: str, directory: Path, token_file: Path) -> None:
        self._api = Api(plane)
        self._path = f"/api/v1/namespaces/{namespace}"
        self._directory = directory
        self._token_file = token_file
        self._pods: dict[str, Pod] = {}
        self._told: dict[str, tuple[str, bool]] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="node", daemon=True)

    def __enter__(self) -> Node:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        for pod in self._pods.values():
            pod.kill()

    def logs(self) -> str:
        """Return the end of what each container said, for a failed assertion."""
        files = sorted(self._directory.glob("*/*.log"))
        return "\n".join(f"== {file.parent.name}/{file.name}\n{file.read_text()[-1500:]}" for file in files)

    def _run(self) -> None:
        while not self._stop.wait(PAUSE_SECONDS):
            try:
                for pod in self._api.ask("GET", f"{self._path}/pods")["items"]:
                    self._see(pod)
            except OSError:  # the pod changed or went meanwhile
                continue

    def _see(self, pod: JSON) -> None:
        metadata = pod["metadata"]
        uid, path = metadata["uid"], f"{self._path}/pods/{metadata['name']}"
        known = self._pods.get(uid)
        if "deletionTimestamp" in metadata:
            if known is not None and not known.ended:
                known.ask_to_end()
                return
            self._pods.pop(uid, None)
            self._api.ask("DELETE", path, {"gracePeriodSeconds": 0})
        elif known is not None:
            self._tell(pod, known)
        elif pod["status"]["phase"] == "Pending":
            if "nodeName" not in pod["spec"]:
                target = {"metadata": {"name": metadata["name"]}, "target": {"kind": "Node", "name": "here"}}
                self._api.ask("POST", f"{path}/binding", target)
            if pod["spec"]["automountServiceAccountToken"]:
                self._write_token(pod["spec"]["serviceAccountName"])
            directory = self._directory / f"{metadata['name']}-{uid[:8]}"
            self._pods[uid] = Pod(self._api, pod, directory)

    def _tell(self, pod: JSON, known: Pod) -> None:
        code = known.code
        ready = code is None and known.ready
        phase = "Running" if code is None else "Failed" if code else "Succeeded"
        if self._told.get(pod["metadata"]["uid"]) == (phase, ready):
            return
        state = running(pod) if code is None else terminated(code)
        states = {container["name"]: state for container in pod["spec"]["containers"]}
        self._api.report(pod, phase, ready, states, known.address)
        self._told[pod["metadata"]["uid"]] = (phase, ready)

    def _write_token(self, account: str) -> None:
        asked = {"spec": {"expirationSeconds": 3600}}
        made = self._api.ask("POST", f"{self._path}/serviceaccounts/{account}/token", asked)
        self._token_file.write_text(made["status"]["token"])
