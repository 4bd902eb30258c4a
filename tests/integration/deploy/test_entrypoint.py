"""The image's entrypoint: no signal is lost on the way to kvlens, and no half cache is kept."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.checkout import ROOT
from tests.support.processes import Started, started

SCRIPT = ROOT / "deploy" / "image" / "entrypoint.sh"
COMPILED = {"one/a.nbc": "1", "one/b.nbc": "2", "two/c.nbc": "3"}
_PYTHON = f"#!{sys.executable}\nimport os, signal, sys\n"
# A shell would let signals in again.
SAYS_WHAT_IT_GOT = (
    _PYTHON
    + """
print(*sorted(int(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, ())))
print(os.environ["NUMBA_CACHE_DIR"], *sys.argv[1:])
"""
)
SIGNALLED_BEFORE_IT_LOADS = (
    _PYTHON
    + """
os.kill(os.getpid(), signal.SIGTERM)
from pipeline.cli.entry import main
main()
"""
)

Run = Callable[..., Started]


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """What the image has in /opt/kvlens, with a kvlens that does nothing."""
    opt = tmp_path / "opt"
    for name, content in COMPILED.items():
        path = opt / "compiled" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    (opt / "bin").mkdir()
    (opt / "bin" / "entrypoint").write_text(SCRIPT.read_text())
    program(opt / "bin" / "kvlens", SAYS_WHAT_IT_GOT)
    (tmp_path / "tmp").mkdir()
    return opt


@pytest.fixture
def run(image: Path, tmp_path: Path) -> Run:
    """A function that starts the entrypoint; `cp` is what stands for that program."""

    def start(*arguments: str, cp: str = "") -> Started:
        path = "/usr/bin:/bin"
        if cp:
            (tmp_path / "path").mkdir()
            program(tmp_path / "path" / "cp", cp)
            path = f"{tmp_path / 'path'}:{path}"
        settings = {"TMPDIR": str(tmp_path / "tmp"), "PATH": path, "NUMBA_CACHE_DIR": ""}
        command = ["/bin/sh", str(image / "bin" / "entrypoint"), *arguments]
        return started(command, tmp_path / "log", cwd=tmp_path, **settings)

    return start


def program(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


def kept(tmp_path: Path) -> dict[str, str]:
    """Return the cache as kvlens finds it."""
    root = tmp_path / "tmp" / "kvlens-compiled"
    return {str(path.relative_to(root)): path.read_text() for path in root.rglob("*.nbc")}


def test_kvlens_gets_a_whole_cache_and_every_word(run: Run, tmp_path: Path) -> None:
    process = run("connect", "a b")
    assert process.process.wait(60) == 0
    assert process.said().splitlines()[-1] == f"{tmp_path}/tmp/kvlens-compiled connect a b"
    assert kept(tmp_path) == COMPILED


def test_a_copy_that_was_broken_off_does_not_count(run: Run, tmp_path: Path) -> None:
    broken_off = run("connect", cp='#!/bin/sh\nmkdir -p "$3/one"\necho 1 > "$3/one/a.nbc"\nkill -9 $PPID\n')
    assert broken_off.process.wait(60) == -signal.SIGKILL
    assert kept(tmp_path) == {}
    assert run("connect").process.wait(60) == 0
    assert kept(tmp_path) == COMPILED
    assert [path.name for path in (tmp_path / "tmp").iterdir()] == ["kvlens-compiled"]


@pytest.mark.parametrize(("number", "code"), [("TERM", 143), ("INT", 130)])
def test_a_signal_while_it_copies_ends_it(run: Run, number: str, code: int) -> None:
    # The first process of a container has handlers or gets no signal, so being killed by one is not enough.
    process = run("connect", cp=f"#!/bin/sh\nkill -{number} $PPID\n")
    assert process.process.wait(60) == code
    assert process.said() == ""


def test_a_signal_waits_until_kvlens_has_a_handler(run: Run) -> None:
    process = run("connect")
    assert process.process.wait(60) == 0
    assert process.said().splitlines()[0] == f"{int(signal.SIGINT)} {int(signal.SIGTERM)}"


def test_a_signal_that_came_before_python_ends_kvlens(run: Run, image: Path) -> None:
    program(image / "bin" / "kvlens", SIGNALLED_BEFORE_IT_LOADS)
    process = run("connect")
    assert process.process.wait(60) == 143
    assert process.said() == "kvlens: terminated\n"
