"""The image runs read-only and unprivileged, with the code that was compiled when it was built."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fleet import image
from tests.support.checkout import written_version

NOBODY_THERE = """
[kafka]
bootstrap_servers = "127.0.0.1:1"
[clickhouse]
url = "http://127.0.0.1:1"
[[replicas]]
id = "a"
model = "m"
endpoint = "tcp://127.0.0.1:1"
"""
WARM_UP = """
cp -R /opt/kvlens/compiled /tmp/kvlens-compiled
export NUMBA_CACHE_DIR=/tmp/kvlens-compiled
find $NUMBA_CACHE_DIR -name '*.nbc' | sort > /tmp/before
python3 -c 'from connectors.receive.warming import warm_up; warm_up()'
python3 -c 'from pipeline.worker.warming import warm_up; warm_up()'
find $NUMBA_CACHE_DIR -name '*.nbc' | sort > /tmp/after
cmp /tmp/before /tmp/after && wc -l < /tmp/after
"""
STATUS = "id -u; id -g; grep -E '^(Cap...|NoNewPrivs|Seccomp):' /proc/self/status; touch /opt/x"
AT_ONCE = 5.0
"""Seconds, as the documentation promises; nothing runs beside these tests."""
WHILE_IT_LOADS = 143
Say = Callable[[str], None]


@pytest.fixture(scope="module", autouse=True)
def built(tmp_path_factory: pytest.TempPathFactory) -> None:
    if (lacking := image.missing()) is not None:
        pytest.skip(f"the image was not built: {lacking}")
    image.build(tmp_path_factory.mktemp("image"))


@pytest.fixture
def settings(tmp_path: Path) -> Path:
    file = tmp_path / "kvlens.toml"
    file.write_text(NOBODY_THERE)
    return file


def test_it_runs_without_rights_and_without_a_writable_root() -> None:
    code, said = image.output("-c", STATUS, shell=True)
    assert code != 0
    user, group, *status, refused = said.splitlines()
    assert (user, group) == ("65532", "65532")
    assert dict(line.split(":\t") for line in status) == {
        **{f"Cap{which}": "0" * 16 for which in ("Inh", "Prm", "Eff", "Bnd", "Amb")},
        "NoNewPrivs": "1",
        "Seccomp": "2",  # a filter
    }
    assert "Read-only file system" in refused
    assert image.output("--version") == (0, f"kvlens {written_version()}\n")


def test_without_anything_writable_it_says_what_to_mount() -> None:
    code, said = image.output("--version", tmp=False)
    assert (code, said) == (2, "kvlens: /tmp is not writable; mount an emptyDir or a tmpfs there\n")


def test_code_that_was_compiled_into_it_is_used(say: Say) -> None:
    began = time.monotonic()
    code, said = image.output("-c", WARM_UP, shell=True)
    say(f"connector and worker warm after {time.monotonic() - began:.1f} s, container and imports included")
    assert code == 0, said
    assert int(said) > 10, "pieces of compiled code, and none was added"


@pytest.mark.parametrize("command", ["connect", "work", "index", "serve"])
@pytest.mark.parametrize("seconds", [0.0, 0.3, 1.0, 3.0, 8.0])
def test_it_waits_for_broker_and_store_and_ends_at_once(
    command: str, seconds: float, settings: Path, say: Say
) -> None:
    with image.running(settings, command) as end:
        time.sleep(seconds)
        code, took = end()
    say(f"{command}, SIGTERM after {seconds:g} s: exit {code} after {took:.1f} s")
    assert code in (0, WHILE_IT_LOADS)
    assert took < AT_ONCE


@pytest.mark.parametrize("command", ["connect", "work", "index"])
@pytest.mark.parametrize("seconds", [3.0, 8.0])
def test_it_ends_at_once_while_it_compiles(command: str, seconds: float, settings: Path, say: Say) -> None:
    with image.running(settings, command, NUMBA_CACHE_DIR="/tmp/nothing") as end:
        time.sleep(seconds)
        code, took = end()
    say(f"{command} without compiled code, SIGTERM after {seconds:g} s: exit {code} after {took:.1f} s")
    assert code in (0, WHILE_IT_LOADS)
    assert took < AT_ONCE


def test_the_page_ends_at_once_while_its_store_hangs(
    settings: Path, free_port: Callable[..., int], say: Say
) -> None:
    port = free_port()
    with socket.create_server(("127.0.0.1", 0)) as deaf, contextlib.ExitStack() as open_until_then:
        deaf.settimeout(60)
        store = f"http://127.0.0.1:{deaf.getsockname()[1]}"
        where = {"KVLENS_CLICKHOUSE__URL": store, "KVLENS_PAGE__PORT": str(port)}
        with image.running(settings, "serve", **where) as end:
            open_until_then.enter_context(deaf.accept()[0])  # the look at the beginning
            browser = open_until_then.enter_context(socket.create_connection(("127.0.0.1", port)))
            browser.sendall(
                b"GET /api/panels/fleet-sources?from=0&to=3600 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
            )
            open_until_then.enter_context(deaf.accept()[0])
            code, took = end()
    say(f"serve, SIGTERM while the store hangs: exit {code} after {took:.1f} s")
    assert code == 0
    assert took < AT_ONCE
