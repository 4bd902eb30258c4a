"""What a confined process can do, apart from any SQL."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

SCRIPT = """
import json, os, socket, subprocess, sys, threading
from pathlib import Path
from pipeline.local.clickhouse.confinement import confine

own, other, port, closed = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
link = own / "link"
reason = confine(own, port)

def tried(action):
    try:
        action()
    except OSError as error:
        return type(error).__name__
    return "done"

def bound(number):
    with socket.socket() as it:
        it.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        it.bind(("127.0.0.1", number))

def in_thread(action):
    said = []
    thread = threading.Thread(target=lambda: said.append(tried(action)))
    thread.start()
    thread.join()
    return said[0]

print(json.dumps({"reason": reason, "tried": {
    "write its own": tried(lambda: (own / "a").write_text("x")),
    "rename its own": tried(lambda: ((own / "d").mkdir(), (own / "a").rename(own / "d" / "b"))),
    "read its own": tried(lambda: (own / "d" / "b").read_text()),
    "read a library": tried(lambda: Path(json.__file__).read_text()),
    "read another": tried(lambda: (other / "canary").read_text()),
    "read by a link": tried(lambda: (link.symlink_to(other / "canary"), link.read_text())),
    "read in a thread": in_thread(lambda: (other / "canary").read_text()),
    "write another": tried(lambda: (other / "written").write_text("x")),
    "read its environment": tried(lambda: Path("/proc/self/environ").read_text()),
    "start a program": tried(lambda: subprocess.run(["/bin/true"])),
    "serve its port": tried(lambda: bound(port)),
    "serve another port": tried(lambda: bound(closed)),
    "reach a port": tried(lambda: socket.create_connection(("127.0.0.1", closed), 1)),
}}))
"""
NEEDED = dict.fromkeys(
    ("write its own", "rename its own", "read its own", "read a library", "serve its port"), "done"
)
FORBIDDEN = dict.fromkeys(
    (
        *("read another", "read by a link", "read in a thread", "write another", "read its environment"),
        *("start a program", "serve another port", "reach a port"),
    ),
    "PermissionError",
)


def test_a_confined_process_has_its_directory_and_its_port(
    tmp_path: Path, free_port: Callable[[], int]
) -> None:
    own, other = tmp_path / "own", tmp_path / "other"
    own.mkdir()
    other.mkdir()
    (other / "canary").write_text("secret")
    command = [sys.executable, "-c", SCRIPT, str(own), str(other), str(free_port()), str(free_port())]
    said = json.loads(subprocess.run(command, capture_output=True, check=True, timeout=60, text=True).stdout)
    if said["reason"] is None:
        assert said["tried"] == NEEDED | FORBIDDEN
    else:
        # An older kernel: it says so, and everything works as without.
        assert {name: said["tried"][name] for name in NEEDED} == NEEDED
