"""What the README shows runs as it is shown, but for addresses, ports and how long it takes."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from clickhouse_connect.driver.client import Client

from pipeline.clickhouse import migrations
from pipeline.local.clickhouse.embedded import EmbeddedStore
from schemas.settings import ClickHouse, Settings
from tests.support.checkout import ROOT
from tests.support.command_lines import FENCE, command_lines

README = (ROOT / "README.md").read_text("utf-8")
ENGINE = "tcp://10.0.0.11:5557"


def blocks(language: str) -> list[str]:
    return [block for shown, block in FENCE.findall(README) if shown == language]


def shown(command: str) -> str:
    """The README's command line of a subcommand that reads or plays an engine."""
    [line] = [line for line in command_lines(README) if line.startswith(f"kvlens {command} ")]
    return line.removeprefix("kvlens ")


def kvlens(line: str, directory: Path, *more: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "pipeline.cli.main", *shlex.split(line, comments=True), *more],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def said(line: str, directory: Path, *more: str) -> str:
    """What the command prints, once it has ended well."""
    with kvlens(line, directory, *more) as process:
        out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    return out


def test_settings_are_accepted(tmp_path: Path) -> None:
    [block] = [block for block in blocks("toml") if "[[replicas]]" in block]
    (tmp_path / "kvlens.toml").write_text(block)
    assert ENGINE in said("config show", tmp_path)


def test_questions_have_answers(store: EmbeddedStore, store_client: Client, database: str) -> None:
    migrations.apply(Settings(clickhouse=ClickHouse(url=store.url, database=database)))
    store_client.command(
        f"INSERT INTO {database}.occupancy_10s (window, model, replica, medium, blocks, tokens, trust)"
        " VALUES (now() - 60, 'm', 'vllm-0', 'gpu', 5, 80, 'complete')"
    )
    [question] = blocks("sql")
    [row] = store_client.query(question.replace("kvlens.", f"{database}.")).result_rows
    assert row[1:] == ("vllm-0", 5, 80, "complete")


def test_an_engine_is_simulated_recorded_analysed_and_played(
    tmp_path: Path, free_port: Callable[..., int]
) -> None:
    config = tmp_path / "simulated.toml"
    base_port = str(free_port(2))
    ports = ("--base-port", base_port, "--metrics-port", "-1", "--duration", "60")
    with kvlens(shown("simulate"), tmp_path, *ports) as engines:
        while not (config.exists() and config.read_text().count("[[replicas]]") == 2):
            assert engines.poll() is None, engines.communicate()
            time.sleep(0.1)
        record = shown("record").replace(ENGINE, f"tcp://127.0.0.1:{base_port}")
        said(record.replace("--seconds 60", "--seconds 5"), tmp_path)
        engines.terminate()
        engines.communicate(timeout=30)
    assert "gpu" in said(shown("analyze"), tmp_path)
    assert "200,000" in said(shown("whatif"), tmp_path)
    play = shown("play").replace("tcp://127.0.0.1:5557", f"tcp://127.0.0.1:{free_port()}")
    said(play, tmp_path, "--wait-subscribers", "0", "--speed", "max")
