"""What a campaign says about its faults."""

from __future__ import annotations

from tests.system.faults.campaign.report import Outcome, line, table

KILLED = Outcome(1, "worker killed", "worker-1", 10.0, 2.5, 4.0)
AGAIN = Outcome(2, "worker killed", "worker-2", 20.0, 1.0, 9.0)
HURRIED = Outcome(3, "worker killed", "worker-1", 30.0, 1.0, None)
MISSED = Outcome(4, "store killed", "nothing: it was not there", 40.0, 0.0, 1.5)


def test_line_says_what_was_done_and_how_it_ended() -> None:
    assert line(KILLED) == "   10.0 s    1  worker killed: worker-1, held 2.5 s; live after 4.0 s"
    assert line(HURRIED).endswith("held 1.0 s")


def test_table_has_a_row_for_each_kind() -> None:
    rows = [text.split("  ") for text in table([KILLED, AGAIN, HURRIED, MISSED])]
    cells = [[cell.strip() for cell in row if cell.strip()] for row in rows]
    assert cells == [
        ["fault", "done", "not come", "live after s (median)", "(longest)"],
        ["store killed", "0", "1", "1.5", "1.5"],
        ["worker killed", "3", "0", "6.5", "9.0"],
    ]
