"""What the files for GitHub and pre-commit name exists, and workflows get no more than they need."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from tests.support.checkout import ROOT

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

GITHUB = ROOT / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PYTHONS = [
    each.rpartition(" ")[2]
    for each in PROJECT["classifiers"]
    if re.fullmatch(r"Programming Language :: Python :: 3\.\d+", each)
]


def read(path: Path) -> Any:
    return YAML(typ="safe").load(path)


def jobs() -> list[Any]:
    """(workflow:job, job) of all workflows."""
    return [
        pytest.param(job, id=f"{path.stem}:{name}")
        for path in WORKFLOWS
        for name, job in read(path)["jobs"].items()
    ]


def targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):.*##", (ROOT / "Makefile").read_text("utf-8"), re.M))


@pytest.mark.parametrize(
    ("schema", "files"),
    [
        ("github-workflows", WORKFLOWS),
        ("dependabot", [GITHUB / "dependabot.yml"]),
        ("github-issue-config", [GITHUB / "ISSUE_TEMPLATE" / "config.yml"]),
        (
            "github-issue-forms",
            [path for path in (GITHUB / "ISSUE_TEMPLATE").glob("*.yml") if path.stem != "config"],
        ),
    ],
)
def test_files_are_valid_by_the_published_schemas(schema: str, files: list[Path]) -> None:
    assert files
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}", *files]
    checked = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert checked.returncode == 0, checked.stdout


def test_oldest_python_is_the_one_that_the_project_requires() -> None:
    assert PROJECT["requires-python"] == f">={PYTHONS[0]}"


@pytest.mark.parametrize("job", jobs())
def test_a_job_runs_targets_of_make_on_pythons_of_the_project(job: Any) -> None:
    commands = [step["run"] for step in job["steps"] if "run" in step]
    assert commands
    for command in commands:
        assert re.fullmatch(r"make [a-z-]+", command), command
        assert command.removeprefix("make ") in targets()
    pythons = job["strategy"]["matrix"]["python"]
    assert pythons in (PYTHONS, [PYTHONS[0], PYTHONS[-1]])


def test_quick_and_test_run_on_every_python() -> None:
    found = read(GITHUB / "workflows" / "ci.yml")["jobs"]
    for target in ("quick", "test"):
        assert found[target]["strategy"]["matrix"]["python"] == PYTHONS
        assert found[target]["steps"][-1]["run"] == f"make {target}"


@pytest.mark.parametrize("job", jobs())
def test_actions_are_pinned_and_a_job_ends(job: Any) -> None:
    assert job["timeout-minutes"] <= 360
    for step in job["steps"]:
        if "uses" in step:
            assert re.fullmatch(r"actions/[\w-]+@[0-9a-f]{40}", step["uses"])
            for path in filter(None, [step.get("with", {}).get("cache-dependency-path")]):
                assert (ROOT / path).is_file()


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_may_only_read_and_keep_no_login(path: Path) -> None:
    workflow = read(path)
    assert workflow["permissions"] == {"contents": "read"}
    for job in workflow["jobs"].values():
        assert "permissions" not in job
        (checkout,) = [step for step in job["steps"] if "actions/checkout" in step.get("uses", "")]
        assert checkout["with"]["persist-credentials"] is False


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_each_pin_says_which_version_it_is(path: Path) -> None:
    uses = re.findall(r"uses: (\S+)(.*)", path.read_text("utf-8"))
    assert uses
    assert [action for action, rest in uses if not re.fullmatch(r" # v\d+\.\d+\.\d+", rest)] == []


def test_dependabot_looks_where_something_is() -> None:
    manifests = {
        "github-actions": ".github/workflows",
        "pip": "dev.txt",
        "npm": "package.json",
        "gomod": "go.mod",
    }
    for update in read(GITHUB / "dependabot.yml")["updates"]:
        directory = ROOT / update["directory"].removeprefix("/")
        assert (directory / manifests[update["package-ecosystem"]]).exists()


def test_pre_commit_runs_the_ruff_of_the_lock() -> None:
    (repository,) = read(ROOT / ".pre-commit-config.yaml")["repos"]
    assert repository["repo"] == "local"
    makefile = (ROOT / "Makefile").read_text("utf-8")
    for hook in repository["hooks"]:
        assert hook["entry"].startswith(".venv/bin/ruff ")
        assert f"$(VENV)/{hook['name']}" in makefile
