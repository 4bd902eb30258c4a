"""The image runs read-only and unprivileged, with the code that was compiled when it was built."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fleet import image

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
Say = Callable[[str], None]


@pytest.fixture(scope="module", autouse=True)
def built(tmp_path_factory: pytest.TempPathFactory) -> None:
    if (lacking := image.missing()) is not None:
        pytest.skip(f"the image was not built: {lacking}")
    image.build(tmp_path_factory.mktemp("image"))


def test_it_runs_without_rights_and_without_a_writable_root() -> None:
    code, said = image.output("-c", "id -u; grep CapEff /proc/self/status; touch /opt/x", shell=True)
    assert code != 0
    assert said.splitlines()[:2] == ["65532", "CapEff:\t0000000000000000"]
    assert "Read-only file system" in said
    assert image.output("--version") == (0, "kvlens 0.1.0\n")


def test_without_anything_writable_it_says_what_to_mount() -> None:
    code, said = image.output("--version", tmp=False)
    assert (code, said) == (2, "kvlens: /tmp is not writable; mount an emptyDir or a tmpfs there\n")


def test_code_that_was_compiled_into_it_is_used(say: Say) -> None:
    began = time.monotonic()
    code, said = image.output("-c", WARM_UP, shell=True)
    say(f"connector and worker warm after {time.monotonic() - began:.1f} s, container and imports included")
    assert code == 0, said
    assert int(said) > 10, "pieces of compiled code, and none was added"


@pytest.mark.parametrize("command", ["connect", "work"])
@pytest.mark.parametrize("seconds", [3.0, 8.0])
def test_it_waits_for_broker_and_store_and_ends_at_once(
    command: str, seconds: float, tmp_path: Path, say: Say
) -> None:
    settings = tmp_path / "kvlens.toml"
    settings.write_text(NOBODY_THERE)
    code, took = image.stopped(seconds, settings, command)
    say(f"{command}, SIGTERM after {seconds:g} s: exit {code} after {took:.1f} s")
    assert code == 0
    assert took < 30, "what it waits for may take a minute"
