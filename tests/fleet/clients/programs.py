"""The readers of `deploy/examples/readers`, each installed with the client that it pins."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.fleet.real_parts import cache_directory
from tests.support.checkout import ROOT

READERS = ROOT / "deploy" / "examples" / "readers"
NODE = "node@24.21.0"
"""A Node whose zlib has zstd, of npm; the one that is installed may be older."""
JARS = "dependency:copy-dependencies"
SECONDS = 900

Command = list[str]


class ToolMissing(Exception):
    """This machine lacks what installs or runs a client; the text names it."""


class Program(NamedTuple):
    """A reader, and how to make a command of it in an empty folder."""

    source: str
    command: Callable[[str, Path], Command]


def python(source: str, folder: Path) -> Command:
    return python_script(Path(shutil.copy(READERS / source, folder)))


def python_script(file: Path) -> Command:
    """Return the command of a script that names its packages (PEP 723)."""
    uv = Path(sys.executable).with_name("uv")
    return [str(uv), "run", "--quiet", "--no-project", "--script", str(file)]


def node(source: str, folder: Path) -> Command:
    npm = tool("npm")
    copied = shutil.copytree(READERS / source, folder / source)
    for packages in ((), ("--no-save", NODE)):
        run([npm, "install", "--silent", "--no-audit", "--no-fund", *packages], copied)
    return [str(copied / "node_modules" / ".bin" / "node"), str(copied / "reader.mjs")]


def go(source: str, folder: Path) -> Command:
    program = folder / source
    run([tool("go"), "build", "-o", str(program), "."], READERS / source)
    return [str(program)]


def java(source: str, folder: Path) -> Command:
    home = READERS / "java"
    jars = folder / "jars"
    run([tool("mvn"), "-q", "-B", JARS, f"-DoutputDirectory={jars}", f"-Dproject.basedir={folder}"], home)
    return [tool("java"), "-cp", f"{jars}/*", str(home / source)]


def rust(source: str, folder: Path) -> Command:
    """Built into the user's cache, once: it takes ten minutes of CPU."""
    home = READERS / source
    target = cache_directory((home / "Cargo.lock").read_bytes() + (home / "src" / "main.rs").read_bytes())
    copied = shutil.copytree(home, folder / source)
    run([tool("cargo"), "build", "--release", "--locked", f"--target-dir={target}"], copied, 3600)
    return [str(target / "release" / f"reader-{source}")]


PROGRAMS: Mapping[str, Program] = {
    "confluent-kafka": Program("read_confluent_kafka.py", python),
    "aiokafka": Program("read_aiokafka.py", python),
    "kafka-python": Program("read_kafka_python.py", python),
    "KafkaJS": Program("kafkajs", node),
    "platformatic": Program("platformatic", node),
    "franz-go": Program("franz-go", go),
    "sarama": Program("sarama", go),
    "kafka-clients": Program("Reader.java", java),
    "Kafka Streams": Program("Streams.java", java),
    "rdkafka": Program("rdkafka", rust),
    "rskafka": Program("rskafka", rust),
}


def installed(name: str, folder: Path) -> Command:
    """Return the command of a reader, without its arguments. Raises ToolMissing."""
    program = PROGRAMS[name]
    return program.command(program.source, folder)


def tool(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise ToolMissing(f"no {name}")
    return found


def run(command: Sequence[str], folder: Path, seconds: float = SECONDS) -> None:
    done = subprocess.run(
        command,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    assert done.returncode == 0, f"{command}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
