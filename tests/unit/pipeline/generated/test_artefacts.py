"""Generated files are those the code writes, and `--check` notices when they are not."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from pipeline.dashboards.alerts import ALERTS
from pipeline.dashboards.boards import BOARDS
from pipeline.generated.__main__ import main
from pipeline.generated.artefacts import render
from pipeline.generated.examples.files import FrozenExistsError, freeze
from pipeline.generated.pages.dashboards import dashboards_page
from tests.support.checkout import ROOT


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of the directories that hold generated files."""
    shutil.copytree(ROOT / "schemas", tmp_path / "schemas", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    return tmp_path


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, list(arguments))
    return result.exit_code, result.output


def test_committed_files_are_up_to_date() -> None:
    assert run("--check") == (0, "")


def test_the_page_of_dashboards_has_every_panel_and_rule_once_and_no_statement() -> None:
    page = dashboards_page().decode()
    panels = {panel.id: panel for board in BOARDS for panel in board.panels}
    of_panels, _, of_rules = page.partition("## Alert rules")
    rows = re.findall(r"^\| (.+?) \| (.+?) \| (.+) \|$", of_panels, re.M)
    shown = [row for row in rows if row[0] not in ("Panel", "---")]
    assert [row[:2] for row in shown] == [(panel.title, panel.unit) for panel in panels.values()]
    meanings = [panel.description for panel in panels.values()]
    assert [row[2] for row in shown if row[2] != "As above."] == list(dict.fromkeys(meanings))
    assert re.findall(r"^\| \[(.+?)\]\(", of_rules, re.M) == [alert.title for alert in ALERTS]
    assert "SELECT" not in page


def test_an_altered_file_is_named_with_what_changed(checkout: Path) -> None:
    page = checkout / "docs" / "configuration.md"
    page.write_text(page.read_text("utf-8").replace("linger_seconds", "linger_hours"), "utf-8")
    code, output = run("--check", "--root", str(checkout))
    assert code == 1
    assert "differs: docs/configuration.md" in output
    assert "linger_hours" in output
    assert "docs/tables.md" not in output
    assert "linger_hours" in page.read_text("utf-8"), "a check writes nothing"


def test_an_altered_binary_example_is_named(checkout: Path) -> None:
    path = checkout / "schemas" / "examples" / "current" / "events.v1" / "run.msgpack"
    path.write_bytes(path.read_bytes() + b"\xc1")
    code, output = run("--check", "--root", str(checkout))
    assert code == 1
    assert "differs: schemas/examples/current/events.v1/run.msgpack" in output


def test_missing_and_stale_files_are_named_and_repaired(checkout: Path) -> None:
    missing = checkout / "schemas" / "generated" / "asyncapi.json"
    stale = checkout / "schemas" / "examples" / "current" / "events.v1" / "forgotten.json"
    missing.unlink()
    stale.write_text("{}")
    code, output = run("--check", "--root", str(checkout))
    assert code == 1
    assert "missing: schemas/generated/asyncapi.json" in output
    assert "no longer generated: schemas/examples/current/events.v1/forgotten.json" in output
    assert run("--root", str(checkout))[0] == 0
    assert not stale.exists()
    assert missing.read_bytes() == (ROOT / "schemas" / "generated" / "asyncapi.json").read_bytes()
    assert run("--check", "--root", str(checkout)) == (0, "")


@pytest.mark.night
def test_writing_leaves_frozen_and_handwritten_files_alone(checkout: Path) -> None:
    def others() -> dict[Path, bytes]:
        generated = {checkout / path for path in render()}
        return {
            file: file.read_bytes()
            for file in checkout.rglob("*")
            if file.is_file() and file not in generated
        }

    freeze(checkout, "0.99")
    before = others()
    assert any("released" in file.parts for file in before)
    run("--root", str(checkout))
    assert others() == before


def test_frozen_examples_are_never_overwritten(checkout: Path) -> None:
    assert freeze(checkout, "0.99").is_dir()
    with pytest.raises(FrozenExistsError):
        freeze(checkout, "0.99")
    code, output = run("--freeze", "0.99", "--root", str(checkout))
    assert code == 1
    assert "never change" in output


@pytest.mark.night
def test_output_does_not_depend_on_the_process() -> None:
    """String hashing differs between the two, so that an unordered set would show."""
    program = (
        "import hashlib; from pipeline.generated.artefacts import render;"
        "print(hashlib.sha256(b''.join(k.encode() + v for k, v in render().items())).hexdigest())"
    )
    digests = {
        subprocess.run(
            [sys.executable, "-c", program],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout.strip()
        for seed in ("1", "2")
    }
    here = hashlib.sha256(b"".join(path.encode() + content for path, content in render().items())).hexdigest()
    assert digests == {here}
