"""A folder with the packages that a script names in its header, what those need, and nothing else."""

from __future__ import annotations

import re
import sys
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_HEADER = re.compile(r"^# /// script\n((?:#.*\n)+?)# ///$", re.M)


def named_by(script: Path) -> list[Requirement]:
    """Return the dependencies that the header of a script names (PEP 723)."""
    found = _HEADER.search(script.read_text("utf-8"))
    assert found is not None, f"{script} has no header"
    text = "\n".join(line[1:].strip() for line in found[1].splitlines())
    return [Requirement(one) for one in tomllib.loads(text)["dependencies"]]


def fill(folder: Path, named: list[Requirement]) -> None:
    """Link what is installed here of these packages into a folder; the versions have to be those named."""
    todo, done = list(named), set[str]()
    while todo:
        wanted = todo.pop()
        if wanted.name in done or (wanted.marker and not wanted.marker.evaluate({"extra": ""})):
            continue
        done.add(wanted.name)
        found = distribution(wanted.name)
        assert found.version in wanted.specifier, f"{wanted} is named, {found.version} is tested"
        todo += [Requirement(one) for one in found.requires or ()]
        for top in _tops(found):
            link = folder / top
            if not link.exists():
                link.symlink_to(Path(str(found.locate_file(top))).resolve())


def _tops(found: Distribution) -> set[str]:
    return {file.parts[0] for file in found.files or () if file.parts[0] not in ("..", "__pycache__")}
