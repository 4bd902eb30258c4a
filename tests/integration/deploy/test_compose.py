"""The Compose file: valid by Compose's own schema, and what it says to kvlens and mounts is right."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Any

import pytest
from ruamel.yaml import YAML

from pipeline.settings.loading import load
from tests.support.checkout import ROOT

DIRECTORY = ROOT / "deploy" / "compose"
FILE = DIRECTORY / "compose.yaml"
WRITTEN = ("CLICKHOUSE_PASSWORD", "READER_PASSWORD", "GRAFANA_PASSWORD", "PAGE_TOKEN", "INDEX_TOKEN")
"""What docs/compose.md writes into deploy/compose/.env."""


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    services: dict[str, Any] = YAML(typ="safe").load(FILE)["services"]
    return services


def test_it_is_valid_by_the_schema_of_compose() -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(FILE)]
    checked = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert checked.returncode == 0, checked.stdout


def test_what_it_mounts_exists(services: dict[str, Any]) -> None:
    mounts = [mount for service in services.values() for mount in service.get("volumes", ())]
    sources = {mount.partition(":")[0] for mount in mounts}
    assert [source for source in sources if source[0] == "." and not (DIRECTORY / source).exists()] == []
    named = {source for source in sources if source[0] != "."}
    assert named == set(YAML(typ="safe").load(FILE)["volumes"])


def test_the_passwords_are_those_that_its_page_writes() -> None:
    assert set(re.findall(r"\$\{(\w+)", FILE.read_text("utf-8"))) == set(WRITTEN)
    assert f"for name in {' '.join(WRITTEN)}; do" in (ROOT / "docs" / "compose.md").read_text("utf-8")


def test_kvlens_accepts_what_it_is_told(services: dict[str, Any]) -> None:
    kvlens = {name: each for name, each in services.items() if each["image"] == "kvlens"}
    told = {name: each for name, each in kvlens.items() if "environment" in each}
    assert set(told) == {"topics", "tables", "connect", "work", "serve", "index"}
    document = (DIRECTORY / "config" / "kvlens.toml").read_text("utf-8")
    for service in told.values():
        environment = {
            name: re.sub(r"\$\{.*\}", "sixteen-or-longer", str(value))
            for name, value in service["environment"].items()
        }
        settings = load(document, "kvlens.toml", environment, read_secret=str).settings
        assert settings.kafka.replication_factor == len([name for name in services if "kafka" in name])
        for server in settings.kafka.bootstrap_servers.split(","):
            assert server.partition(":")[0] in services
        assert settings.clickhouse.url.split("//")[1].partition(":")[0] in services
        simulated = services["engines"]["command"]
        assert len(settings.replicas) == int(simulated[simulated.index("--replicas") + 1])


def test_an_edited_file_arrives_however_it_is_written(services: dict[str, Any]) -> None:
    followed = services["connect"]
    (mount,) = followed["volumes"]
    source, target, _ = mount.split(":")
    assert (DIRECTORY / source).is_dir(), "a file that takes the place of another is another file"
    config = followed["environment"]["KVLENS_CONFIG"]
    assert [f"{target}/{path.name}" for path in (DIRECTORY / source).iterdir()] == [config]


def test_nothing_is_reachable_from_other_machines(services: dict[str, Any]) -> None:
    ports = [port for service in services.values() for port in service.get("ports", ())]
    assert len(ports) == 3
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_kvlens_runs_with_no_right_that_it_does_not_need(services: dict[str, Any]) -> None:
    kvlens = [each for each in services.values() if each["image"] == "kvlens"]
    assert all(
        each["read_only"] and each["cap_drop"] == ["ALL"] and each["tmpfs"] == ["/tmp"] for each in kvlens
    )
