"""`kvlens doctor` as a command: its output, its exit codes, and where it gets the settings from."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.local.run_file import RunFileMissing, read_on_purpose, read_run_file, write_run_file
from tests.support.processes import kvlens


def test_with_nothing_there_it_says_so_twice_and_exits_1(
    tmp_path: Path, free_port: Callable[[], int]
) -> None:
    addresses = {
        "KVLENS_KAFKA__BOOTSTRAP_SERVERS": f"127.0.0.1:{free_port()}",
        "KVLENS_CLICKHOUSE__URL": f"http://127.0.0.1:{free_port()}",
    }
    code, output, errors = kvlens("doctor", "--timeout", "5", cwd=tmp_path, **addresses)
    assert (code, errors) == (1, "")
    lines = output.splitlines()
    assert [line.split(":")[0] for line in lines if line.startswith("PROBLEM")] == [
        "PROBLEM kafka-unavailable",
        "PROBLEM store-unavailable",
    ]
    assert lines[0].startswith("verdict: problems (")
    code, output, _ = kvlens("doctor", "--json", "--timeout", "5", cwd=tmp_path, **addresses)
    document = json.loads(output)
    assert (code, document["exit_code"], document["verdict"]) == (1, 1, "problems")
    assert all(finding["remedy"] for finding in document["findings"])


def test_a_directory_in_which_nothing_ever_ran(tmp_path: Path) -> None:
    code, _, errors = kvlens("doctor", "--data-dir", str(tmp_path), cwd=tmp_path)
    assert code == 1
    assert errors.startswith(f"kvlens: {tmp_path} holds no running.json")


def test_what_runs_is_read_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tmp_path / "kvlens.toml"
    monkeypatch.setenv("SOMETHING_ELSE", "kept")
    write_run_file(tmp_path, config, {"KVLENS_CLICKHOUSE__URL": "http://127.0.0.1:1"}, {"a/0": "a demo"})
    assert read_on_purpose(tmp_path) == {"a/0": "a demo"}
    found, environment = read_run_file(tmp_path)
    assert found == config
    assert environment["KVLENS_CLICKHOUSE__URL"] == "http://127.0.0.1:1"
    assert environment["SOMETHING_ELSE"] == "kept"
    assert read_run_file(tmp_path, Path("mine.toml"))[0] == Path("mine.toml")
    (tmp_path / "running.json").write_text("{")
    with pytest.raises(RunFileMissing):
        read_run_file(tmp_path)
