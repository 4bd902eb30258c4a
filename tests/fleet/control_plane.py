"""Real Kubernetes API servers with their etcd, as processes of a test."""

from __future__ import annotations

import csv
import io
import json
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from tests.fleet.real_parts import Programs

START_SECONDS = 90.0
ADMIN = "admin-token"


class ControlPlane:
    """etcd and two API servers on 127.0.0.1, as a cluster with two control plane nodes has them.

    Connectors use the first one, which is killed and started again; tests change the cluster by the second.
    """

    def __init__(self, programs: Programs, directory: Path, free_port: Callable[..., int]) -> None:
        self._programs = programs
        self._directory = directory
        self._etcd_port, self._peer_port = free_port(), free_port()
        self._port, self._other_port = free_port(), free_port()
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self.url = f"https://127.0.0.1:{self._port}"
        """Of the server that connectors use."""
        self.other_url = f"https://127.0.0.1:{self._other_port}"
        self.ca_file = directory / "certificates" / "apiserver.crt"
        """What the server's certificate is checked against."""
        self.kubeconfig = directory / "kubeconfig.json"
        """For clients that are the administrator."""

    def start(self) -> None:
        """Start all, with a new certificate and a new key for the tokens of ServiceAccounts."""
        self._directory.mkdir(parents=True, exist_ok=True)
        key = self._directory / "accounts.key"
        subprocess.run(["openssl", "genrsa", "-out", str(key), "2048"], check=True, capture_output=True)
        tokens = io.StringIO()
        csv.writer(tokens).writerow([ADMIN, "admin", "admin", "system:masters"])
        (self._directory / "tokens.csv").write_text(tokens.getvalue())
        self._start(
            "etcd",
            "etcd",
            f"--data-dir={self._directory / 'etcd'}",
            f"--listen-client-urls=http://127.0.0.1:{self._etcd_port}",
            f"--advertise-client-urls=http://127.0.0.1:{self._etcd_port}",
            f"--listen-peer-urls=http://127.0.0.1:{self._peer_port}",
            f"--initial-advertise-peer-urls=http://127.0.0.1:{self._peer_port}",
            f"--initial-cluster=default=http://127.0.0.1:{self._peer_port}",
            "--unsafe-no-fsync",
        )
        self.start_server()
        self._serve("other", self._other_port)
        self._write_kubeconfig()

    def start_server(self) -> None:
        """Start the server that connectors use; return when it is ready."""
        self._serve("server", self._port)

    def start_controllers(self) -> None:
        """Start what makes pods of workloads, and takes away what belongs to nothing."""
        if "controllers" in self._processes:
            return
        names = ("deployment", "replicaset", "statefulset", "job", "garbage-collector")
        self._start(
            "controllers",
            "kube-controller-manager",
            f"--kubeconfig={self.kubeconfig}",
            f"--controllers={','.join(f'{name}-controller' for name in names)}",
            "--leader-elect=false",
            "--secure-port=0",
        )

    def kill_server(self) -> None:
        """End it at once, as a lost node does; what connectors watch breaks off."""
        self._kill("server")

    def stop(self) -> None:
        for name in [*self._processes]:
            self._kill(name)

    def compact(self) -> None:
        """Have etcd forget everything but the present state, so that older versions cannot be watched."""
        revision = self._etcd_asks("kv/range", b'{"key": "AA=="}')
        number = int(revision.partition(b'"revision":"')[2].partition(b'"')[0])
        self._etcd_asks("kv/compaction", b'{"revision": %d, "physical": true}' % number)

    def _etcd_asks(self, path: str, body: bytes) -> bytes:
        url = f"http://127.0.0.1:{self._etcd_port}/v3/{path}"
        with urllib.request.urlopen(url, data=body, timeout=10) as answer:
            return bytes(answer.read())

    def _serve(self, name: str, port: int) -> None:
        key = self._directory / "accounts.key"
        process = self._start(
            name,
            "kube-apiserver",
            f"--etcd-servers=http://127.0.0.1:{self._etcd_port}",
            f"--secure-port={port}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            f"--cert-dir={self.ca_file.parent}",
            f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}",
            "--service-account-issuer=https://test",
            f"--token-auth-file={self._directory / 'tokens.csv'}",
            "--authorization-mode=RBAC",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--disable-admission-plugins=ServiceAccount",
            "--endpoint-reconciler-type=none",
        )
        deadline = time.monotonic() + START_SECONDS
        while not self._ready(port):
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"kube-apiserver did not start; see {self._directory}/{name}.log")
            time.sleep(0.2)

    def _start(self, name: str, program: str, *arguments: str) -> subprocess.Popen[bytes]:
        with (self._directory / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                [str(self._programs[program]), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._directory,
            )
        return self._processes[name]

    def _write_kubeconfig(self) -> None:
        cluster = {"server": self.other_url, "certificate-authority": str(self.ca_file)}
        context = {"cluster": "test", "user": "admin"}
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": "admin", "user": {"token": ADMIN}}],
            "contexts": [{"name": "test", "context": context}],
            "current-context": "test",
        }
        self.kubeconfig.write_text(json.dumps(document))

    def _kill(self, name: str) -> None:
        process = self._processes.pop(name, None)
        if process is not None:
            process.kill()
            process.wait()

    def _ready(self, port: int) -> bool:
        if not self.ca_file.exists():
            return False
        try:
            context = ssl.create_default_context(cafile=str(self.ca_file))
            url = f"https://127.0.0.1:{port}/readyz"
            with urllib.request.urlopen(url, context=context, timeout=2) as answer:
                return bool(answer.status == 200)
        except OSError:  # ssl.SSLError and urllib's errors are such
            return False
