"""See to real programs written in Go: on this machine, built before, or built now."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

REQUIREMENTS = Path(__file__).parent / "parts"
VARIABLE = "KUBEBUILDER_ASSETS"
"""envtest's: a folder with etcd, kube-apiserver and kubectl."""
ADVICE = (
    f"set {VARIABLE} to a folder that holds them, or install Go 1.26 and see that it reaches a module proxy"
)


class Part(NamedTuple):
    """A program."""

    requirements: str
    """Folder below REQUIREMENTS."""
    package: str
    """Of the modules that are required, or the folder itself."""


PARTS = {
    "etcd": Part("kubernetes", "go.etcd.io/etcd/server/v3"),
    "kube-apiserver": Part("kubernetes", "k8s.io/kubernetes/cmd/kube-apiserver"),
    "kube-controller-manager": Part("kubernetes", "k8s.io/kubernetes/cmd/kube-controller-manager"),
    "kubectl": Part("kubernetes", "k8s.io/kubernetes/cmd/kubectl"),
    "helm": Part("helm", "helm.sh/helm/v4/cmd/helm"),
    "otelcol": Part("collector", "."),
}
KUBERNETES = ("etcd", "kube-apiserver", "kube-controller-manager", "kubectl", "helm")
COLLECTOR = ("otelcol",)
Programs = Mapping[str, Path]
"""Name -> program."""


class PartsMissing(Exception):
    """They cannot be had; the text says in one line what to do."""


def programs(names: Iterable[str]) -> Programs:
    """Return these programs; those that are nowhere are built into the user's cache. Raises PartsMissing."""
    had = {name: _found(name) or _built(name) for name in names}
    if lacking := [name for name, program in had.items() if program is None]:
        raise PartsMissing(f"no {', '.join(lacking)}: {ADVICE}")
    return {name: program for name, program in had.items() if program is not None}


def _found(name: str) -> Path | None:
    folders = [Path(os.environ[VARIABLE])] if VARIABLE in os.environ else []
    for folder in [*folders, _cache(PARTS[name].requirements)]:
        if os.access(folder / name, os.X_OK):
            return folder / name
    installed = shutil.which(name)
    if installed and (name == "kubectl" or (name == "helm" and _is_helm_4(installed))):
        return Path(installed)
    return None


def _is_helm_4(program: str) -> bool:
    return subprocess.check_output([program, "version", "--short"], text=True).startswith("v4.")


def _built(name: str) -> Path | None:
    part = PARTS[name]
    go = shutil.which("go")
    if go is None:
        return None
    folder = _cache(part.requirements)
    folder.mkdir(parents=True, exist_ok=True)
    sys.stdout.write(f"building {name} into {folder}, once; this takes minutes\n")
    sys.stdout.flush()
    aside = folder / f"{name}.{os.getpid()}"
    command = [
        go,
        "build",
        "-mod=readonly",
        "-trimpath",
        "-buildvcs=false",
        f"-ldflags=-s -w {_stamps(part)}",
    ]
    done = subprocess.run(
        ["nice", "-n", "19", *command, "-o", str(aside), part.package],
        cwd=REQUIREMENTS / part.requirements,
        env={**os.environ, "GOFLAGS": "-p=1", "GOTOOLCHAIN": "local"},
        stdin=subprocess.DEVNULL,
        check=False,
    )
    if done.returncode:
        aside.unlink(missing_ok=True)
        return None
    aside.rename(folder / name)
    return folder / name


def _stamps(part: Part) -> str:
    """Return what tells a program its version, by which charts and clients go."""
    if part.package == ".":
        return ""
    text = (REQUIREMENTS / part.requirements / "go.mod").read_text()
    (version,) = re.findall(r"(?:k8s\.io/kubernetes|helm\.sh/helm/v4) (v\d+\.\d+\.\d+)$", text, re.M)
    if part.requirements == "helm":
        return f"-X helm.sh/helm/v4/internal/version.version={version}"
    major, minor, _ = version.removeprefix("v").split(".")
    values = {"gitVersion": version, "gitMajor": major, "gitMinor": minor}
    return " ".join(f"-X k8s.io/component-base/version.{key}={value}" for key, value in values.items())


def _cache(requirements: str) -> Path:
    files = [REQUIREMENTS / requirements / name for name in ("go.mod", "go.sum", "main.go")]
    return cache_directory(b"".join(file.read_bytes() for file in files if file.exists()))


def cache_directory(contents: bytes) -> Path:
    """Return where in the user's cache something is kept that was made of these contents."""
    base = os.environ.get("XDG_CACHE_HOME")
    root = Path(base) if base else Path.home() / ".cache"
    return root / "kvlens" / "fleet" / sha256(contents).hexdigest()[:16]


if __name__ == "__main__":
    for what, names in (("Kubernetes and Helm", KUBERNETES), ("OpenTelemetry's collector", COLLECTOR)):
        try:
            for name, program in programs(names).items():
                sys.stdout.write(f"{name}: {program}\n")
        except PartsMissing as error:
            sys.stdout.write(f"make test-fleet without {what}: {error}\n")
