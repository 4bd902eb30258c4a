"""The table of failures in docs/operations.md names every fault of the campaign, and no other."""

from __future__ import annotations

from tests.support.checkout import ROOT
from tests.system.faults.campaign.kinds.catalogue import KINDS


def test_every_fault_is_in_the_table_of_failures() -> None:
    section = (
        (ROOT / "docs/operations.md").read_text("utf-8").split("## What fails how\n")[1].split("\n## ")[0]
    )
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("|")][2:]
    assert sorted(name.strip() for row in rows for name in row.split(";")) == sorted(
        kind.name for kind in KINDS
    )
