"""Which cases two revisions have: what stays, what waits for the night, what was merged, what is gone.

    python -m tests.support.suite.compared OLD [NEW]

NEW is the checkout if it is not given. Fails on cases of OLD that NEW has in no tier and `merged.toml` does
not explain.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from tests.support.checkout import ROOT

MERGED = Path("tests/support/suite/merged.toml")
# `make test` does not collect it, because it needs real servers.
FLEET = "tests/fleet"


@dataclass(frozen=True)
class Cases:
    """Ids of the cases of a revision: of `make test`, and those that only `make night` runs."""

    day: frozenset[str]
    night: frozenset[str]

    @property
    def all(self) -> frozenset[str]:
        return self.day | self.night


class Merge(msgspec.Struct, rename={"cases": "from"}, forbid_unknown_fields=True):
    """An entry of `merged.toml`: cases that another case, or a file, asserts now."""

    into: str
    cases: list[str]


class Merges(msgspec.Struct, forbid_unknown_fields=True):
    merged: list[Merge] = []


@dataclass
class Comparison:
    """Where the cases of the old revision are in the new one."""

    stay: set[str] = field(default_factory=set)
    to_night: set[str] = field(default_factory=set)
    to_day: set[str] = field(default_factory=set)
    added: set[str] = field(default_factory=set)
    merged: dict[str, set[str]] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)
    nowhere: set[str] = field(default_factory=set)
    """What `merged.toml` names as `into` and the new revision does not have."""

    @property
    def explained(self) -> bool:
        return not self.gone and not self.nowhere


def matches(pattern: str, case: str) -> bool:
    """Tell whether an id is meant: `*` is any text, all else is itself (brackets, too)."""
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), case, re.DOTALL) is not None


def compare(old: Cases, new: Cases, merged: Sequence[Merge]) -> Comparison:
    """Say of every case of either revision what became of it."""
    found = Comparison(
        stay=set((old.day & new.day) | (old.night & new.night)),
        to_night=set(old.day & new.night),
        to_day=set(old.night & new.day),
        added=set(new.all - old.all),
        gone=set(old.all - new.all),
    )
    files = {case.partition("::")[0] for case in new.all}
    functions = {case.partition("[")[0] for case in new.all}
    for entry in merged:
        into = entry.into
        if into not in new.all | files | functions:
            found.nowhere.add(into)
            continue
        here = {case for case in found.gone if any(matches(pattern, case) for pattern in entry.cases)}
        if here:
            found.merged[into] = found.merged.get(into, set()) | here
            found.gone -= here
    return found


def lines(found: Comparison) -> Iterator[str]:
    """Say in lines what became of the cases: counts first, then each file that lost or moved some."""
    yield f"{len(found.stay)} stay, {len(found.to_night)} go to the night, {len(found.to_day)} come from it"
    merged = sum(map(len, found.merged.values()))
    yield f"{len(found.added)} are new, {merged} were merged, {len(found.gone)} are gone"
    for file, cases in sorted(by_file(found.to_night).items()):
        yield f"to the night: {len(cases):4} of {file}"
    for into, cases in sorted(found.merged.items()):
        yield f"merged: {len(cases):4} of {', '.join(sorted(by_file(cases)))} into {into}"
    for case in sorted(found.gone):
        yield f"GONE: {case}"
    for into in sorted(found.nowhere):
        yield f"NOWHERE: {MERGED.name} merges cases into {into}, which does not exist"


def by_file(cases: Iterable[str]) -> dict[str, list[str]]:
    files: dict[str, list[str]] = {}
    for case in cases:
        files.setdefault(case.partition("::")[0], []).append(case)
    return files


def collected(checkout: Path, *arguments: str) -> frozenset[str]:
    """Return the ids that pytest collects in a checkout."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--collect-only", "-q", *arguments]
    done = subprocess.run(command, cwd=checkout, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if "Unknown marker" in done.stderr:  # no case of that revision is marked
        return collected(checkout, *arguments[:1])
    if done.returncode not in (0, 5):
        raise SystemExit(f"{checkout}: cannot collect:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    # Some parameters are paths.
    told = done.stdout.replace(str(checkout), "CHECKOUT").splitlines()
    return frozenset(line for line in told if re.match(r"tests/\S+\.py::", line))


def cases_of(checkout: Path) -> Cases:
    everything, fleet = collected(checkout, "tests"), collected(checkout, FLEET)
    day = collected(checkout, "tests", "-m", "not night")
    return Cases(day - fleet, (everything - day) | fleet)


@contextmanager
def at(revision: str) -> Iterator[Path]:
    """A checkout of a revision, thrown away afterwards."""
    with TemporaryDirectory() as directory:
        checkout = Path(directory) / "checkout"
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "--detach", "--quiet", str(checkout), revision], check=True)
        try:
            yield checkout
        finally:
            subprocess.run([*git, "remove", "--force", str(checkout)], check=True)


def main(old: str, new: str | None = None) -> int:
    with at(old) as before:
        earlier = cases_of(before)
    if new is None:
        now, merged = cases_of(ROOT), (ROOT / MERGED).read_bytes()
    else:
        with at(new) as after:
            now, merged = cases_of(after), (after / MERGED).read_bytes()
    found = compare(earlier, now, msgspec.toml.decode(merged, type=Merges).merged)
    print("\n".join(lines(found)))
    return 0 if found.explained else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
