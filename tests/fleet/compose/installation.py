"""What the Compose file starts, on this machine: its own images stand in for those that cannot be pulled."""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from pipeline.local.broker.jars import read_lock, verified_jars
from pipeline.local.broker.java import locate_java
from tests.fleet import image
from tests.support.checkout import ROOT

FILE = ROOT / "deploy" / "compose" / "compose.yaml"
IMAGES = Path(__file__).parent / "images"
PROGRAMS = ("podman-compose", "netavark", "aardvark-dns")
_BESIDE = "/usr/lib/podman"
"""Where Debian puts programs that only podman calls."""
_CONTAINERS = """
[containers]
default_ulimits = ["nofile=20000:20000", "nproc=4096:4096"]
[engine]
runtime = "runc"
[network]
network_backend = "netavark"
"""
STAND_INS = {
    "kvlens": image.NAME,
    "kafka": "localhost/kvlens-test-kafka:latest",
    "clickhouse-server": "localhost/kvlens-test-clickhouse:latest",
}
"""Image of the file, without registry and version -> what is run in its place."""
NOT_HERE = ("grafana",)
"""Services whose image nothing can stand in for."""
QUERY = """
SELECT toFloat64(min(heard)), count() FROM
(SELECT replica, max(last_batch_at) AS heard FROM kvlens.stream_health_10s FINAL GROUP BY replica)
FORMAT JSONCompact
"""
ASK = """
import sys
from urllib.request import Request, urlopen

login = {"X-ClickHouse-User": "reader", "X-ClickHouse-Key": sys.argv[2]}
print(urlopen(Request("http://127.0.0.1:8123/", sys.argv[1].encode(), login)).read().decode())
"""


def missing() -> str | None:
    """Return in one line what the machine lacks; None if the file can be run."""
    path = f"{os.environ.get('PATH', '')}:{_BESIDE}"
    lacking = [name for name in PROGRAMS if shutil.which(name, path=path) is None]
    advice = "install Debian's packages, and podman-compose of PyPI"
    return image.missing() or (f"no {' and '.join(lacking)}: {advice}" if lacking else None)


class Composed:
    """A project of its own: the services of the file but those of NOT_HERE, with ports that are free."""

    def __init__(self, directory: Path, library: Path, free_port: Callable[..., int]) -> None:
        self._directory = directory
        self._library = library
        self._project = f"kvlens{secrets.token_hex(3)}"
        self._file = directory / "compose.yaml"
        self._settings = directory / "config" / "kvlens.toml"
        shutil.copytree(FILE.parent / "config", self._settings.parent)
        document: dict[str, Any] = YAML(typ="safe").load(FILE)
        self.services = {name: each for name, each in document["services"].items() if name not in NOT_HERE}
        self.ports: dict[str, int] = {}
        for name, service in self.services.items():
            service.pop("build", None)
            # Names of their own: whoever has the others' images keeps them.
            service["image"] = STAND_INS[service["image"].rpartition("/")[2].partition(":")[0]]
            # Podman 4.3 looks for what is waited for among the services that it starts at the same moment.
            # kvlens waits for everything itself.
            service.pop("depends_on", None)
            # What a machine allows of open files may be less than a server of its own asks for.
            service.pop("ulimits", None)
            service["volumes"] = [self._absolute(volume) for volume in service.get("volumes", ())]
            for _ in service.get("ports", ()):
                self.ports[name] = free_port()
                service["ports"] = [f"127.0.0.1:{self.ports[name]}:{service['ports'][0].rpartition(':')[2]}"]
        YAML(typ="safe").dump({**document, "name": self._project, "services": self.services}, self._file)
        (directory / "containers.conf").write_text(_CONTAINERS)
        named = set(re.findall(r"\$\{(\w+)", FILE.read_text("utf-8")))
        self.words = {name: secrets.token_hex(16) for name in named}

    def build(self) -> None:
        """Build kvlens's image, and those that stand in for others."""
        image.build(self._directory)
        context = self._directory / "images"
        shutil.copytree(IMAGES, context)
        java = locate_java(os.environ).resolve().parent.parent
        shutil.copytree(java, context / "java", symlinks=False, ignore_dangling_symlinks=True)
        (context / "jars").mkdir()
        for jar in verified_jars(read_lock(), self._directory / "fetched", lambda line: None):
            shutil.copy(jar, context / "jars")
        os.link(self._library, context / "libchdb.so")
        base = os.environ.get(image.VARIABLE, image.BASE)
        for name, stand_in in (("kafka", "kafka"), ("clickhouse", "clickhouse-server")):
            self.run(
                *("buildah", "build", "--layers", "--isolation=chroot", "--network=host", f"--target={name}"),
                *(f"--build-arg=PYTHON_IMAGE={base}", f"--tag={STAND_INS[stand_in]}"),
                str(context),
            )

    def rename_last_replica(self, name: str) -> None:
        """Edit the settings as `sed -i` and editors do: a new file takes the place of the old one."""
        head, key, last = self._settings.read_text("utf-8").rpartition('id = "')
        aside = self._settings.with_suffix(".new")
        aside.write_text(f"{head}{key}{name}{last[last.index(chr(34)) :]}", "utf-8")
        aside.replace(self._settings)

    def up(self) -> None:
        self.compose("--profile", "simulated", "up", "--detach", *self.services)

    def down(self) -> None:
        self.compose("--profile", "simulated", "down", "--volumes", "--timeout", "5", checked=False)

    def compose(self, *arguments: str, checked: bool = True) -> str:
        return self.run("podman-compose", "--file", str(self._file), *arguments, checked=checked)

    def run(self, *command: str, checked: bool = True, seconds: float = 600.0) -> str:
        done = subprocess.run(
            command,
            cwd=ROOT,
            # Without systemd nothing runs checks of health by itself.
            env={
                **os.environ,
                **self.words,
                "CONTAINERS_CONF": str(self._directory / "containers.conf"),
                "DISABLE_HC_SYSTEMD": "true",
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=seconds,
            check=False,
        )
        assert not checked or not done.returncode, f"{' '.join(command)}: {done.stdout[-3000:]}"
        return done.stdout

    def container(self, service: str) -> str:
        """Return the name of a service's only container."""
        labels = (f"com.docker.compose.service={service}", f"io.podman.compose.project={self._project}")
        filters = [f"--filter=label={label}" for label in labels]
        listed = self.run("podman", "ps", "--all", "--format={{.Names}}", *filters)
        (name,) = listed.split()
        return name

    def state(self, service: str) -> Mapping[str, Any]:
        inspected = self.run("podman", "inspect", self.container(service))
        state: Mapping[str, Any] = json.loads(inspected)[0]["State"]
        return state

    def said(self, service: str) -> str:
        return self.run("podman", "logs", "--tail", "30", self.container(service), checked=False)

    def kvlens(self, service: str, *arguments: str) -> str:
        """Run a command of kvlens in the container of a service, with its settings."""
        return self.run("podman", "exec", self.container(service), "/opt/kvlens/bin/kvlens", *arguments)

    def get(self, service: str, path: str, token: str) -> Any:
        """Return what a published port answers, as JSON."""
        address = f"http://127.0.0.1:{self.ports[service]}{path}"
        request = urllib.request.Request(address, headers={"Authorization": f"Bearer {self.words[token]}"})
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)

    def newest(self) -> tuple[float, int]:
        """Return the time of the oldest of the replicas' newest batches, and how many replicas there are.

        Asked as the account of the page and of Grafana.
        """
        asked = self.run(
            *("podman", "exec", self.container("clickhouse"), "python3", "-c", ASK),
            *(QUERY, self.words["READER_PASSWORD"]),
            checked=False,
        )
        try:
            ((heard, replicas),) = json.loads(asked)["data"]
        except ValueError:
            return 0.0, 0
        return float(heard or 0), int(replicas)

    def wait_fresh(self, replicas: int, seconds: float = 240.0) -> float:
        """Return how long it took until the tables knew a batch of now of every replica."""
        began = time.time()
        while (found := self.newest()) < (began, 0) or found[1] != replicas:
            assert time.time() < began + seconds, (found, self.said("connect"), self.said("work"))
            time.sleep(0.5)
        return time.time() - began

    def wait_known(self, replicas: int, seconds: float = 240.0) -> float:
        """Return how long it took until the tables knew so many replicas, gone ones included."""
        began = time.time()
        while self.newest()[1] != replicas:
            assert time.time() < began + seconds, self.said("connect")
            time.sleep(0.5)
        return time.time() - began

    def _absolute(self, volume: str) -> str:
        source, colon, rest = volume.partition(":")
        if source == "./config":
            return f"{self._settings.parent}:{rest}"
        return f"{FILE.parent / source}{colon}{rest}" if source[0] == "." else volume
