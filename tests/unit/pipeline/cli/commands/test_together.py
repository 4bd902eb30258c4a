"""Options that do not go together are refused, rather than ignored."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from pipeline.cli.main import kvlens
from pipeline.settings.loading import CONFIG_VARIABLE

ENDPOINT = ("--endpoint", "tcp://127.0.0.1:1")


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("verify", "--from-recording", "f", "--until", "5"), "--until and --patience are for the log"),
        (("verify", "--from-recording", "f", "--patience", "0"), "--until and --patience are for the log"),
        (("record", "f", "--topic", "kv-events"), "--topic is for --endpoint"),
        (("record", "f", "--topic", "kv-events", "--config", "c"), "--topic is for --endpoint"),
        (("record", "f", *ENDPOINT, "--config", "c"), "give --endpoint or --config"),
    ],
)
def test_what_would_be_ignored_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], line: str
) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(kvlens, arguments)
    assert result.exit_code == 2, result.output
    assert line in result.output
    assert not [*tmp_path.iterdir()]


def test_a_file_that_all_commands_share_may_be_named_in_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(CONFIG_VARIABLE, "shared.toml")
    result = CliRunner().invoke(kvlens, ["record", "f", *ENDPOINT, "--seconds", "0.1"])
    assert "127.0.0.1:1: 0 batches" in result.output
