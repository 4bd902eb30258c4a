"""Which processes the runner takes for left behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.suite import run
from tests.support.suite.run import below, has_adopted, orphaned

HERE, PYTEST, WORKER, DEAD = 10, 11, 12, 13
TREE = {HERE: 1, PYTEST: HERE, WORKER: PYTEST, 20: WORKER, 21: 20, 99: 1}


def test_descendants_at_any_depth() -> None:
    assert below({HERE}, TREE) == {PYTEST, WORKER, 20, 21}
    assert below({20}, TREE) == {21}
    assert below({99}, TREE) == set()


def test_orphans_of_a_dead_process_with_all_below_them() -> None:
    adopted = TREE | {30: HERE, 31: 30, 32: HERE, 33: HERE}
    run_by = {30: DEAD, 32: WORKER, 33: None}
    # 32 may be meant: the process that runs its test lives. Nobody knows whose 33 is; it ends with the run.
    assert orphaned(adopted, HERE, PYTEST, run_by.get) == {30, 31}


def test_pytest_itself_is_no_orphan() -> None:
    assert orphaned(TREE, HERE, PYTEST, {PYTEST: DEAD}.get) == set()


@pytest.mark.parametrize(
    ("children", "adopted"), [("11 ", False), ("11 30 ", True), ("", True), (None, True)]
)
def test_all_processes_are_looked_at_only_where_there_are_orphans(
    children: str | None, adopted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And where a kernel does not tell the children of a process."""
    monkeypatch.setattr(run, "CHILDREN", tmp_path / "children")
    if children is not None:
        (tmp_path / "children").write_text(children)
    assert has_adopted(PYTEST) == adopted
