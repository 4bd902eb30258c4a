"""The wheel of kvlens-reader, where msgspec is and nothing else: what its page shows works."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

from packaging.requirements import Requirement

from tests.support.checkout import ROOT
from tests.support.only_these_packages import fill

PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
from kvlens_reader import Copies, decode
headers = [("content-type", b"application/msgpack")]
record = decode("kvlens.events.v1", open(sys.argv[2], "rb").read(), headers)
cache = Copies()
for change in cache.apply(record):
    print(change.kind, f"{change.hash:016x}")
print(sorted(cache.held("vllm-0")[("gpu", 0)]))
print([name for name in ("schemas", "numba", "numpy", "aiokafka", "faust") if name in sys.modules])
"""


def test_it_needs_msgspec_and_nothing_else(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path / "dist")]
    ended = subprocess.run(
        build, cwd=ROOT / "schemas" / "reader", capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    (wheel,) = (tmp_path / "dist").glob("kvlens_reader-*.whl")
    folder = tmp_path / "packages"
    folder.mkdir()
    with zipfile.ZipFile(wheel) as packed:
        names = packed.namelist()
        packed.extractall(folder)
        metadata = packed.read(next(name for name in names if name.endswith("METADATA"))).decode()
    needed = [line.partition(": ")[2] for line in metadata.splitlines() if line.startswith("Requires-Dist")]
    assert [Requirement(one).name for one in needed] == ["msgspec"]
    assert "kvlens_reader/py.typed" in names
    fill(folder, [Requirement(one) for one in needed])
    example = ROOT / "schemas" / "examples" / "current" / "events.v1" / "run.msgpack"
    told = subprocess.run(
        [sys.executable, "-I", "-S", "-c", PROGRAM, str(folder), str(example)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.returncode == 0, told.stderr
    *changes, held, modules = told.stdout.splitlines()
    assert changes[0] == "stored 9c1d5a7e03b24f60"
    assert len(changes) == 11
    assert held == str(sorted([0x9C1D5A7E03B24F60, 0x8F882D60C4E79A15, 0x93B7C40198FA1D14]))
    assert modules == "[]"
