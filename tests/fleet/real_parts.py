"""See to a real kube-apiserver and its etcd: in KUBEBUILDER_ASSETS, built before, or built now with Go."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

REQUIREMENTS = Path(__file__).parent / "parts"
VARIABLE = "KUBEBUILDER_ASSETS"
"""envtest's: a folder with both programs."""
PACKAGES = {"etcd": "go.etcd.io/etcd/server/v3", "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver"}
ADVICE = (
    f"no kube-apiserver and etcd: set {VARIABLE} to a folder that holds both, "
    "or install Go 1.26 and see that it reaches a module proxy"
)


class PartsMissing(Exception):
    """They cannot be had; the text says in one line what to do."""


def found() -> Path | None:
    """Return the folder of both programs; None when there is none."""
    named = os.environ.get(VARIABLE)
    folder = Path(named) if named else _cache()
    return folder if all(os.access(folder / name, os.X_OK) for name in PACKAGES) else None


def built() -> Path:
    """Build both programs into the user's cache. Raises PartsMissing."""
    go = shutil.which("go")
    if named := os.environ.get(VARIABLE):
        raise PartsMissing(f"{VARIABLE}={named} is no folder with {' and '.join(PACKAGES)}")
    if go is None:
        raise PartsMissing(ADVICE)
    folder = _cache()
    folder.mkdir(parents=True, exist_ok=True)
    (version,) = re.findall(r"k8s\.io/kubernetes (v\d+\.(?:\d+)\.\d+)", (REQUIREMENTS / "go.mod").read_text())
    major, minor, _ = version.removeprefix("v").split(".")
    values = {"gitVersion": version, "gitMajor": major, "gitMinor": minor}
    stamps = " ".join(f"-X k8s.io/component-base/version.{key}={value}" for key, value in values.items())
    for name, package in PACKAGES.items():
        if os.access(folder / name, os.X_OK):
            continue
        sys.stdout.write(f"building {name} into {folder}, once; this takes minutes\n")
        sys.stdout.flush()
        aside = folder / f"{name}.{os.getpid()}"
        command = [go, "build", "-mod=readonly", "-trimpath", "-buildvcs=false", f"-ldflags=-s -w {stamps}"]
        environment = {**os.environ, "GOFLAGS": "-p=1", "GOTOOLCHAIN": "local"}
        done = subprocess.run(
            ["nice", "-n", "19", *command, "-o", str(aside), package],
            cwd=REQUIREMENTS,
            env=environment,
            stdin=subprocess.DEVNULL,
            check=False,
        )
        if done.returncode:
            aside.unlink(missing_ok=True)
            raise PartsMissing(ADVICE)
        aside.rename(folder / name)
    return folder


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    contents = b"".join((REQUIREMENTS / name).read_bytes() for name in ("go.mod", "go.sum"))
    root = Path(base) if base else Path.home() / ".cache"
    return root / "kvlens" / "fleet" / sha256(contents).hexdigest()[:16]


if __name__ == "__main__":
    try:
        sys.stdout.write(f"Kubernetes: {found() or built()}\n")
    except PartsMissing as error:
        sys.exit(f"make test-fleet: {error}")
