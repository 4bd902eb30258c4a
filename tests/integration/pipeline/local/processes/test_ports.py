"""Ports that are chosen for parts: free ones, and each for one starter."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator

import pytest

from pipeline.local.processes import ports as ports_module
from pipeline.local.processes.child_process import ProcessFailed
from pipeline.local.processes.ports import LOOPBACK, KeptPorts, PortInUse, require_free_port

_HOLDER = """
import sys, time
from pipeline.local.processes import ports as ports_module
from pipeline.local.processes.child_process import ProcessFailed
from pipeline.local.processes.ports import KeptPorts
ports = KeptPorts()
print(ports.preferred(int(sys.argv[1])), flush=True)
time.sleep(60)
"""


@pytest.fixture
def ports() -> Iterator[KeptPorts]:
    ports = KeptPorts()
    yield ports
    ports.release()


def listener(port: int) -> socket.socket:
    made = socket.socket()
    made.bind((LOOPBACK, port))
    made.listen()
    return made


def test_chosen_ports_are_free_different_and_in_a_row(ports: KeptPorts) -> None:
    first = ports.any(21)
    chosen = [*range(first, first + 21), *(ports.any() for _ in range(20))]
    assert len(set(chosen)) == 41
    for port in chosen:
        listener(port).close()


def test_a_port_on_which_somebody_listens_is_not_chosen(ports: KeptPorts) -> None:
    # Found free by the function under test, and nobody's from then on.
    port = ports.any()
    ports.release()
    with listener(port):
        assert ports.preferred(port) != port
        with pytest.raises(PortInUse, match=f"part: port {port} on {LOOPBACK} is in use; stop what listens"):
            require_free_port("part", port)
    assert ports.preferred(port) == port


def test_a_port_that_is_given_up_in_time_is_free(ports: KeptPorts) -> None:
    port = ports.any()
    with listener(port) as held:
        closing = threading.Timer(0.2, held.close)
        closing.start()
        require_free_port("part", port, patience=20.0)
        closing.join()
    with listener(port), pytest.raises(PortInUse):
        require_free_port("part", port, patience=0.1)


def test_a_port_is_its_choosers_though_nothing_listens_yet(
    ports: KeptPorts, free_port: Callable[[], int]
) -> None:
    port = ports.any()
    others = KeptPorts()
    assert others.preferred(port) != port
    require_free_port("part", port)
    ports.release()
    assert others.preferred(port) == port
    others.release()
    # The fixture of the tests holds what it gives out, too.
    taken = free_port()
    assert ports.preferred(taken) != taken


def test_where_no_port_can_be_had_one_line_says_so(ports: KeptPorts, monkeypatch: pytest.MonkeyPatch) -> None:
    only = ports.any()
    monkeypatch.setattr(ports_module, "_FIRST", only)
    monkeypatch.setattr(ports_module, "_LAST", only + 1)
    with pytest.raises(ProcessFailed, match=rf"^ports: no 1 free in a row between {only} and {only + 1} on"):
        ports.preferred(only)


def test_a_killed_starter_keeps_nothing(ports: KeptPorts) -> None:
    port = ports.any()
    ports.release()
    with subprocess.Popen([sys.executable, "-c", _HOLDER, str(port)], stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert int(holder.stdout.readline()) == port
        assert ports.preferred(port) != port
        holder.kill()
    assert ports.preferred(port) == port
